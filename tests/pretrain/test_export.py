"""Export, from checkpoints that DeepSpeed and the Trainer really wrote (two ranks; make_checkpoints.py), bit for bit."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError, UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain import text_codec
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.export import export
from course_lib.settings import config
from course_lib.training import log
from course_lib.training.checkpoint import mark_complete
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, GPT2LMHeadModel, GPTNeoXForCausalLM, pipeline

from tests.pretrain import make_checkpoints, models
from tests.training import ranks

NAMES = [f"{dtype}-{stage}" for stage, dtype in make_checkpoints.CASES]
STEPS = make_checkpoints.STEPS


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.tokenizer(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def rows(words: Path) -> int:
    return len(json.loads((words / "tokenizer.json").read_text())["model"]["vocab"]) + models.PADDING


@pytest.fixture(scope="module")
def made(rows: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints by name, of one launch."""
    out = tmp_path_factory.mktemp("checkpoints")
    ranks.launch(Path(make_checkpoints.__file__), str(out), str(rows))
    return out


@pytest.fixture
def shape(rows: int, tmp_path: Path) -> Path:
    path = tmp_path / "shape.yaml"
    path.write_text(config.to_yaml(config.build(PretrainConfig, settings(rows))))
    return path


@pytest.fixture
def run(made: Path, words: Path, rows: int, tmp_path: Path) -> Path:
    """A run of ours with a checkpoint and a log that goes on after it."""
    run = tmp_path / "run"
    checkpoint = run / "checkpoints" / f"checkpoint-{STEPS}"
    shutil.copytree(made / "bf16-2", checkpoint)
    mark_complete(checkpoint)
    shutil.copytree(words, run / "tokenizer")
    (run / "config.yaml").write_text(config.to_yaml(config.build(PretrainConfig, settings(rows))))
    inputs = {"/secret/place/wiki/text": {"documents": 1234, "tokens": 567_890, "sha256": "0"}}
    (run / "deepspeed.json").write_text(json.dumps({"train_batch_size": 24}))
    (run / "data.json").write_text(json.dumps({"inputs": inputs, "train_tokens": 538_000}))
    losses = [(1, "train", 5.5), (2, "train", 5.0), (2, "eval", 4.75), (5, "train", 3.0), (5, "eval", 2.5)]
    for step, kind, loss in losses:
        log.append(run, {"kind": kind, "step": step, "loss": loss, "tokens_per_second": 10.0, "learning_rate": 1e-4})
    return run


def settings(rows: int) -> dict[str, Any]:
    model = {"hidden_size": 16, "num_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16}
    return {"model": model | {"vocab_size": rows}, "data": {"seq_length": 16, "input": ["/secret/place/wiki/text"]}}


def truth(made: Path, name: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """What the engine reported, in the format of the export."""
    return {name: tensor.to(dtype) for name, tensor in load_file(made / f"{name}.safetensors").items()}


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    return found.keys() - {"lm_head.weight"} == wanted.keys() and all(
        found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in wanted.items()
    )


@pytest.mark.parametrize("name", NAMES)
def test_raw_checkpoints_come_back_bit_for_bit(made: Path, words: Path, shape: Path, tmp_path: Path, name: str) -> None:
    report = export(made / name, tmp_path / "model", dtype="fp32", config=shape, tokenizer=words)
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    assert same(loaded.state_dict(), truth(made, name, torch.float32))
    assert (loaded.state_dict()["lm_head.weight"] == loaded.transformer.wte.weight).all()
    assert report.weights == ("bf16 weights" if name == "bf16-0" else "fp32 master weights")
    assert (report.step, report.parameters) == (STEPS, loaded.num_parameters())
    # The step's own folder is a source, too; by default, weights are stored as the run computed.
    export(made / name / f"global_step{STEPS}", tmp_path / "model", config=shape, tokenizer=words)
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "model", dtype="auto")
    assert same(loaded.state_dict(), truth(made, name, torch.bfloat16 if "bf16" in name else torch.float32))


@pytest.mark.parametrize(("left_out", "dtype"), [((), "fp32"), (("global_step*", "latest"), "bf16")])
def test_a_checkpoint_of_the_trainer(made: Path, words: Path, tmp_path: Path, left_out: tuple[str], dtype: Any) -> None:
    checkpoint = tmp_path / f"checkpoint-{STEPS}"
    shutil.copytree(made / "trainer" / checkpoint.name, checkpoint, ignore=shutil.ignore_patterns(*left_out))
    report = export(checkpoint, tmp_path / "model", tokenizer=words, dtype=dtype)
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "model", dtype="auto").state_dict()
    assert same(loaded, truth(made, "trainer", TORCH[dtype]))
    assert report.step == STEPS and report.weights == ("bf16 weights" if left_out else "fp32 master weights")


def test_a_run_gives_its_latest_whole_checkpoint(run: Path, words: Path, rows: int, tmp_path: Path) -> None:
    target = tmp_path / "japanese-gpt2"
    report = export(run, target, license="cc-by-sa-4.0")
    assert (report.step, report.dtype, report.loss) == (STEPS, "bf16", 4.75)
    assert "held-out loss 4.7500" in report.summary()
    assert set(report.files) == {path.name for path in target.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "preparation.json",
        "README.md", "curves.png",
    }  # fmt: skip
    shape = AutoConfig.from_pretrained(target)
    assert (shape.bos_token_id, shape.eos_token_id, shape.pad_token_id) == (1, 2, 2)
    assert (shape.activation_function, shape.vocab_size, shape.n_positions) == ("gelu_new", rows, 16)
    for name in ("tokenizer.json", "preparation.json"):
        assert (target / name).read_bytes() == (words / name).read_bytes()
    assert json.loads((target / "tokenizer_config.json").read_text())["model_max_length"] == 16
    assert (target / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_older_checkpoint_is_exported_only_when_asked_for(run: Path, tmp_path: Path) -> None:
    whole = run / "checkpoints" / f"checkpoint-{STEPS}"
    later = whole.with_name("checkpoint-5")
    shutil.copytree(whole, later, ignore=shutil.ignore_patterns("*rank_1*"))
    for step in (None, 5):
        with pytest.raises(CourseError, match=f"{later}: .*--step {STEPS} exports"):
            export(run, tmp_path / "model", step=step)
    assert export(run, tmp_path / "model", step=STEPS).step == STEPS


def test_the_card(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "japanese-gpt2", license="cc-by-sa-4.0")
    written = ModelCard.load(tmp_path / "japanese-gpt2" / "README.md")
    assert (written.data.language, written.data.license) == ("ja", "cc-by-sa-4.0")
    assert "| wiki/text | 1,234 | 567,890 |" in written.text
    assert "| samples per step | 24 |" in written.text and f"| tokens seen | {STEPS * 24 * 16} |" in written.text
    assert "538,000 tokens" in written.text and "4.7500 nats" in written.text
    assert "/secret" not in written.text and str(tmp_path) not in written.text
    export(run, tmp_path / "free")
    assert ModelCard.load(tmp_path / "free" / "README.md").data.license is None


def test_pipeline_and_course_generate_work_on_the_folder(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    export(run, target, dtype="fp32")
    model = GPT2LMHeadModel.from_pretrained(target)
    defaults = model.generation_config
    assert (defaults.do_sample, defaults.top_k, defaults.top_p, defaults.max_new_tokens) == (True, 50, 0.75, 8)
    generator = Generator(target, text_codec.load)
    codec = text_codec.load(target).codec
    assert codec
    prompt = codec.prepare("早稲田")
    greedy = GenerateConfig(strategy="greedy", max_new_tokens=8, min_new_tokens=0)
    continued = pipeline("text-generation", model=str(target))
    (found,) = continued("", do_sample=False)
    assert found["generated_text"] == generator.generate([""], greedy)[0][0].text
    (found,) = continued(prompt, do_sample=False, return_full_text=False)
    assert found["generated_text"] == generator.generate(["早稲田"], greedy)[0][0].continuation


def test_the_cards_own_lines_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    export(run, tmp_path / "model")
    code = (tmp_path / "model" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.strip()


def test_what_is_no_gpt2_is_refused(made: Path, words: Path, shape: Path, rows: int, tmp_path: Path) -> None:
    for name, tensor in {"lm_head.weight": torch.zeros(rows, 16), "adapter.weight": torch.zeros(1)}.items():
        source = tmp_path / name
        shutil.copytree(made / "bf16-0", source)
        path = source / f"global_step{STEPS}" / "mp_rank_00_model_states.pt"
        content = torch.load(path, weights_only=True)
        content["module"][name] = tensor
        torch.save(content, path)
        with pytest.raises(CourseError, match=name):
            export(source, tmp_path / "model", config=shape, tokenizer=words)


def test_a_gpt_neox_of_today_and_of_older_versions(words: Path, rows: int, tmp_path: Path) -> None:
    """The head has another name in files; older ones also hold constants, and say the rotary share by another name."""
    shape = ModelConfig(
        "gpt-neox", rows, 16, 2, 2, max_position_embeddings=16, rotary_pct=0.5, use_parallel_residual=True
    )
    torch.manual_seed(0)
    model = build_model(shape, 1, 2).eval()
    old = tmp_path / "old" / "checkpoint-7"
    model.save_pretrained(tmp_path / "checkpoint-7")
    shutil.copytree(tmp_path / "checkpoint-7", old)
    tensors = load_file(old / "model.safetensors")
    constants = {
        "bias": torch.ones(1, 1, 16, 16),
        "masked_bias": torch.tensor(-1e9),
        "rotary_emb.inv_freq": torch.ones(2),
    }
    tensors |= {f"gpt_neox.layers.0.attention.{name}": value for name, value in constants.items()}
    save_file(tensors, old / "model.safetensors")
    content = json.loads((old / "config.json").read_text())
    del content["rope_parameters"]
    (old / "config.json").write_text(json.dumps(content | {"rotary_pct": 0.5, "rotary_emb_base": 10000}))
    ids = torch.randint(rows, (2, 16))
    for source in (tmp_path / "checkpoint-7", old):
        target = source.parent / "japanese-neox"
        report = export(source, target, tokenizer=words)
        loaded = GPTNeoXForCausalLM.from_pretrained(target)
        assert torch.equal(loaded(ids).logits, model(ids).logits)
        assert (report.step, report.parameters) == (7, shape.parameters())
        written = json.loads((target / "config.json").read_text())
        assert (written["rotary_pct"], written["rope_parameters"]["partial_rotary_factor"]) == (0.5, 0.5)
        assert len(loaded.generation_config.suppress_tokens) == models.PADDING
        assert "gpt_neox" in ModelCard.load(target / "README.md").data.tags
    (old / "config.json").write_text(json.dumps(content | {"model_type": "llama"}))
    with pytest.raises(CourseError, match="model_type 'llama', expected one of 'gpt2', 'gpt_neox'$"):
        export(old, tmp_path / "model", tokenizer=words)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo ran > evil",)


@pytest.mark.parametrize("which", ["mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"])
def test_nothing_in_a_checkpoint_is_run(made, words, shape, tmp_path, monkeypatch, which):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "fp32-2", tmp_path / "copy")
    path = tmp_path / "copy" / f"global_step{STEPS}" / which
    content = torch.load(path, weights_only=False)
    torch.save(content | {"evil": Evil()}, path)
    with pytest.raises(CourseError, match=f"{which}: not loaded, it asks for posix.system, which could run code"):
        export(tmp_path / "copy", tmp_path / "model", config=shape, tokenizer=words)
    assert not (tmp_path / "evil").exists() and not (tmp_path / "model").exists()


def test_a_missing_or_cut_shard(made: Path, words: Path, shape: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "fp32-3", tmp_path / "copy")
    shard = tmp_path / "copy" / f"global_step{STEPS}" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shard.write_bytes(shard.read_bytes()[:5000])
    with pytest.raises(CourseError, match=f"{shard.name}: not a PyTorch checkpoint, or cut short"):
        export(tmp_path / "copy", tmp_path / "model", config=shape, tokenizer=words)
    shard.unlink()
    with pytest.raises(CourseError, match=r"shards not readable: Expected 2 of '\*_optim_states.pt'[^\n]*$"):
        export(tmp_path / "copy", tmp_path / "model", config=shape, tokenizer=words)


def test_what_is_wrong_is_one_line_and_the_earlier_export_stays(run, made, words, shape, rows, tmp_path) -> None:
    target = tmp_path / "model"
    export(run, target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    wide = tmp_path / "wide.yaml"
    wide.write_text(config.to_yaml(config.build(PretrainConfig, settings(rows), ["model.hidden_size=32"])))
    cases: list[tuple[Path, dict[str, Any], str]] = [
        (made / "fp32-1", {}, "--tokenizer"),
        (made / "fp32-1", {"tokenizer": words}, "--config: .* says nothing of the model's shape"),
        (made / "fp32-1", {"tokenizer": words, "config": wide}, r"size mismatch for transformer.wte.weight"),
        (words, {"config": shape}, "no checkpoint: it has neither a global_step folder"),
        (target, {"tokenizer": words}, "is the input "),
    ]  # fmt: skip
    for source, options, message in cases:
        with pytest.raises((CourseError, UsageError), match=message) as caught:
            export(source, target, **options)
        assert "\n" not in str(caught.value)
    assert before == {path.name: path.read_bytes() for path in target.iterdir()}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    (run / "checkpoints" / f"checkpoint-{STEPS}" / "complete.json").unlink()
    with pytest.raises(CourseError, match="run: the run has no whole checkpoint yet$"):
        export(run, target)

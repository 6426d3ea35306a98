"""Export, from checkpoints that DeepSpeed really wrote (two ranks; make_checkpoints.py), bit for bit."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError
from course_lib.files import FILE_LIST, write_json
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.export import export
from course_lib.settings import config
from course_lib.training import log
from course_lib.training.checkpoint import mark_complete
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoConfig, GPT2LMHeadModel, pipeline

from tests.pretrain import make_checkpoints, models
from tests.training import ranks

NAMES = [f"{dtype}-{stage}" for stage, dtype in make_checkpoints.CASES]
STEPS = make_checkpoints.STEPS
CHECKPOINT = f"checkpoints/checkpoint-{STEPS}"


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


def run_of(run: Path, checkpoint: Path, words: Path, rows: int, *overrides: str) -> Path:
    """A run of ours with a checkpoint and a log that goes on after it."""
    shutil.copytree(checkpoint, run / CHECKPOINT)
    mark_complete(run / CHECKPOINT)
    shutil.copytree(words, run / "tokenizer")
    model = {"hidden_size": 16, "num_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16}
    values = {"model": model | {"vocab_size": rows}, "data": {"seq_length": 16, "input": ["/secret/place/wiki/text"]}}
    (run / "config.yaml").write_text(config.to_yaml(config.build(PretrainConfig, values, overrides)))
    inputs = {"/secret/place/wiki/text": {"documents": 1234, "tokens": 567_890, "sha256": "0"}}
    write_json(run / "deepspeed.json", {"train_batch_size": 24})
    write_json(run / "data.json", {"inputs": inputs})
    losses = [(1, "train", 5.5), (2, "train", 5.0), (2, "eval", 4.75), (5, "train", 3.0), (5, "eval", 2.5)]
    for step, kind, loss in losses:
        log.append(run, {"kind": kind, "step": step, "loss": loss, "tokens_per_second": 10.0, "learning_rate": 1e-4})
    return run


@pytest.fixture
def run(made: Path, words: Path, rows: int, tmp_path: Path) -> Path:
    return run_of(tmp_path / "run", made / "bf16-2", words, rows)


@pytest.mark.parametrize("name", NAMES)
def test_weights_come_back_bit_for_bit(made: Path, words: Path, rows: int, tmp_path: Path, name: str) -> None:
    run, target = run_of(tmp_path / "run", made / name, words, rows), tmp_path / "model"
    truth = load_file(made / f"{name}.safetensors")
    # By default, weights are stored as the run computed.
    for dtype, stored in (("fp32", torch.float32), (None, torch.bfloat16 if "bf16" in name else torch.float32)):
        report = export(run, target, dtype=dtype)  # type: ignore[arg-type]
        loaded = GPT2LMHeadModel.from_pretrained(target, dtype="auto")
        weights = loaded.state_dict()
        assert weights.keys() - {"lm_head.weight"} == truth.keys()
        assert all(torch.equal(weights[name], tensor.to(stored)) for name, tensor in truth.items())
        assert TORCH[report["dtype"]] == stored and (weights["lm_head.weight"] == loaded.transformer.wte.weight).all()
    assert report["weights"] == ("bf16 weights" if name == "bf16-0" else "fp32 master weights")
    assert (report["step"], report["parameters"]) == (STEPS, loaded.num_parameters())


def test_a_run_gives_its_latest_whole_checkpoint(run: Path, words: Path, rows: int, tmp_path: Path) -> None:
    target = tmp_path / "japanese-gpt2"
    report = export(run, target)
    assert (report["step"], report["dtype"], report["loss"]) == (STEPS, "bf16", 4.75)
    assert {path.name for path in target.iterdir()} - {FILE_LIST} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "preparation.json",
        "README.md",
    }  # fmt: skip
    shape = AutoConfig.from_pretrained(target)
    assert (shape.bos_token_id, shape.eos_token_id, shape.pad_token_id) == (1, 2, 2)
    assert (shape.activation_function, shape.vocab_size, shape.n_positions) == ("gelu_new", rows, 16)
    for name in ("tokenizer.json", "preparation.json"):
        assert (target / name).read_bytes() == (words / name).read_bytes()
    assert json.loads((target / "tokenizer_config.json").read_text())["model_max_length"] == 16


def test_an_older_checkpoint_is_exported_only_when_asked_for(run: Path, tmp_path: Path) -> None:
    whole = run / CHECKPOINT
    later = whole.with_name("checkpoint-5")
    shutil.copytree(whole, later, ignore=shutil.ignore_patterns("*rank_1*"))
    for step in (None, 5):
        with pytest.raises(CourseError, match=f"{later}: .*--step {STEPS} exports"):
            export(run, tmp_path / "model", step=step)
    assert export(run, tmp_path / "model", step=STEPS)["step"] == STEPS


def test_the_card(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    export(run, tmp_path / "japanese-gpt2", license="cc-by-sa-4.0")
    written = ModelCard.load(tmp_path / "japanese-gpt2" / "README.md")
    assert (written.data.language, written.data.license) == ("ja", "cc-by-sa-4.0")
    assert "| wiki/text | 1,234 | 567,890 |" in written.text and "4.7500 nats" in written.text
    assert f"{STEPS} steps of 24 samples of up to 16 tokens; held-out" in written.text
    first = written.text.split("# japanese-gpt2\n")[1].strip()
    assert first.startswith("**Do not send raw text to another server**") and "Send token ids" in first[:300]
    assert "/secret" not in written.text and str(tmp_path) not in written.text
    # Its own lines run.
    monkeypatch.chdir(tmp_path)
    exec(written.text.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.strip()


def test_pipeline_and_course_generate_work_on_the_folder(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    export(run, target, dtype="fp32")
    model = GPT2LMHeadModel.from_pretrained(target)
    defaults = model.generation_config
    assert (defaults.do_sample, defaults.top_k, defaults.top_p, defaults.max_new_tokens) == (True, 50, 0.75, 8)
    assert len(defaults.suppress_tokens) == models.PADDING
    generator = Generator(target, text_codec.load)
    codec = text_codec.load(target).codec
    assert codec
    greedy = GenerateConfig(strategy="greedy", max_new_tokens=8, min_new_tokens=0)
    (found,) = pipeline("text-generation", model=str(target))(
        # As in training, a document begins with the end of the one before it.
        "</s>" + codec.prepare("早稲田"),
        do_sample=False,
        return_full_text=False,
    )
    assert found["generated_text"] == generator.generate(["早稲田"], greedy)[0][0].continuation


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo ran > evil",)


@pytest.mark.parametrize("which", ["mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"])
def test_nothing_in_a_checkpoint_is_run(made, words, rows, tmp_path, monkeypatch, which):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "fp32-2", tmp_path / "copy")
    path = tmp_path / "copy" / f"global_step{STEPS}" / which
    content = torch.load(path, weights_only=False)
    torch.save(content | {"evil": Evil()}, path)
    run = run_of(tmp_path / "run", tmp_path / "copy", words, rows)
    with pytest.raises(CourseError, match=f"{which}: not loaded, it asks for posix.system, which could run code"):
        export(run, tmp_path / "model")
    assert not (tmp_path / "evil").exists() and not (tmp_path / "model").exists()


def test_what_is_wrong_is_one_line_and_the_earlier_export_stays(run, made, words, rows, tmp_path) -> None:
    target = tmp_path / "model"
    export(run, target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    cut = shutil.copytree(made / "fp32-3", tmp_path / "cut")
    shard = cut / f"global_step{STEPS}" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shard.write_bytes(shard.read_bytes()[:5000])
    (tmp_path / "empty").mkdir()
    for source, message in (
        (
            run_of(tmp_path / "wide", made / "fp32-1", words, rows, "model.hidden_size=32"),
            "size mismatch for transformer",
        ),
        (run_of(tmp_path / "damaged", cut, words, rows), f"{shard.name}: not a PyTorch checkpoint, or cut short"),
        (tmp_path / "empty", "empty: the run has no whole checkpoint yet$"),
    ):
        with pytest.raises(CourseError, match=message) as caught:
            export(source, target)
        assert "\n" not in str(caught.value)
    with pytest.raises(CourseError, match="is the input"):
        export(run, run)
    assert before == {path.name: path.read_bytes() for path in target.iterdir()}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

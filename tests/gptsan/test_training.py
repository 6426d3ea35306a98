"""Real runs: an extra stage on a frozen base, killed, resumed, sharded on two ranks, and refused where it makes no sense."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.checkpoints.training_state import read_weights
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.config import EncodeConfig, GPTSanRunConfig
from course_lib.gptsan.encode import encode
from course_lib.gptsan.extra_stage import IGNORE, add_extra_stage
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.run import GPTSanRun
from course_lib.gptsan.samples import Samples, cross_entropy, spout_vector
from course_lib.gptsan.vocabulary import build_vocabulary
from course_lib.settings import config
from course_lib.training import checkpoint, run_dir
from course_lib.training.loop import train

from tests.training.ranks import kill_in_step
from tests.weights import read_tensors

TEXTS = (
    "鶏肉を切って鍋に入れ、十分煮る。",
    "明日は晴れ、最高気温は二十度の見込み。",
    "後半に二点を取って逆転勝ちした。",
)
STEPS = 8


def export(run: Path, target: Path) -> dict[str, int]:
    """Export a run, given its folder."""
    return GPTSanRun(config.load(GPTSanRunConfig, run / run_dir.CONFIG)).export(target)


def inputs(folder: Path) -> Path:
    """Examples in three classes, a base with random weights and its extra stage."""
    build_vocabulary([text * 3 for text in TEXTS], 430, folder / "words", 0.0)
    rows = ["filename,fileid"]
    for number in range(24):
        (folder / f"{number}.txt").write_text(TEXTS[number % 3] * (1 + number % 2), encoding="utf8")
        rows.append(f"{number}.txt,{number % 3}")
    (folder / "list.csv").write_text("\n".join(rows), encoding="utf8")
    settings = EncodeConfig(num_context=40, d_spout=8)
    encode(str(folder / "list.csv"), folder / "words", folder / "examples", settings)
    torch.manual_seed(0)
    shape = GPTSanConfig(
        vocab_size=430, max_position_embeddings=48, d_model=16, d_ff=32, d_ext=24, d_spout=8, num_switch_layers=2, num_heads=2, num_experts=3,
        spout_init_std=0.5, embedding_init_std=0.5, separator_token_id=428, pad_token_id=425, eos_token_id=429,
    )  # fmt: skip
    GPTSanForCausalLM(shape).save_pretrained(folder / "base")
    for name in ("vocab.txt", "emoji.json", "tokenizer_config.json"):
        (folder / "base" / name).write_bytes((folder / "words" / name).read_bytes())
    add_extra_stage(folder / "base", folder / "stage", 1)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return inputs(tmp_path_factory.mktemp("gptsan"))


def settings(folder: Path, run: Path, *overrides: str) -> GPTSanRunConfig:
    values = {
        "model": {"checkpoint": str(folder / "stage"), "ignore": str(folder / "stage" / IGNORE)},
        "data": {"input": str(folder / "examples"), "held_out": 0.2},
        "spout": {"mode": "uniform"},
        "batch": {"global_size": 8, "micro_size": 2},
        "optimizer": {"lr": {"max": 1e-2, "min": 1e-3, "warmup_steps": 2}},
        "precision": {"dtype": "fp32"},
        "engine": {"output_dir": str(run), "max_steps": STEPS, "logging_freq": 1, "eval_freq": 4, "eval_iters": 1, "save_steps": 3},
        "launch": {"ranks": 2, "threads": 1, "device": "cpu"},
    }  # fmt: skip
    return config.build(GPTSanRunConfig, values, overrides)


@pytest.fixture(scope="module")
def unbroken(folder, tmp_path_factory):
    return train(GPTSanRun(settings(folder, tmp_path_factory.mktemp("runs") / "whole", "launch.ranks=1")))


def test_only_the_extra_stage_learns(folder, unbroken, tmp_path):
    report = export(unbroken.folder, tmp_path / "model")
    before, after = read_tensors(folder / "stage"), read_tensors(tmp_path / "model")
    frozen = set(json.loads((folder / "stage" / IGNORE).read_text()))
    assert before.keys() == after.keys()
    assert report["trained"] + report["frozen"] == len(before) - 1  # the bias is a buffer
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert not changed & frozen
    assert changed == before.keys() - frozen - {"final_logits_bias"}
    losses = [entry["loss"] for entry in unbroken.log if entry["kind"] == "train"]
    assert losses[-1] < losses[0] - 0.05
    saved = set(read_weights(unbroken.folder / "checkpoints" / f"checkpoint-{STEPS}").tensors)
    assert saved and not saved & frozen
    GPTSanForCausalLM.from_pretrained(tmp_path / "model")


@pytest.mark.rehearse
def test_killed_it_resumes_to_the_same_weights(folder, unbroken, tmp_path):
    killed = settings(folder, tmp_path / "run", "launch.ranks=1")
    kill_in_step(5, "gptsan train", killed)
    assert checkpoint.step_of(checkpoint.whole_checkpoints(tmp_path / "run")[0]) == 3
    resumed = train(GPTSanRun(killed), resume=True)
    export(unbroken.folder, tmp_path / "one")
    export(resumed.folder, tmp_path / "two")
    one, two = read_tensors(tmp_path / "one"), read_tensors(tmp_path / "two")
    assert all(torch.equal(one[name], two[name]) for name in one)
    losses = ([entry["loss"] for entry in run.log if entry["kind"] == "train"] for run in (unbroken, resumed))
    assert next(losses) == next(losses)
    with pytest.raises(UsageError, match=r"spout.mode: onehot is not allowed: the run in .* has uniform"):
        train(GPTSanRun(settings(folder, tmp_path / "run", "launch.ranks=1", "spout.mode=onehot")), resume=True)


@pytest.mark.rehearse
def test_sharded_in_bf16_the_frozen_weights_come_back_bit_for_bit(folder, tmp_path):
    run = train(GPTSanRun(settings(
            folder, tmp_path / "run", "zero.stage=3", "precision.dtype=bf16", "model.recompute=full", "spout.mode=none",
            "zero.stage3_param_persistence_threshold=0", "engine.max_steps=3",
        )))  # fmt: skip
    export(run.folder, tmp_path / "model")
    before, after = read_tensors(folder / "stage"), read_tensors(tmp_path / "model")
    assert {value.dtype for value in after.values()} == {torch.float32}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.startswith(("model.blocks.2.", "model.extra_position")) for name in changed)


def test_in_16_bits_the_logits_take_16_bits(folder, tmp_path):
    """DeepSpeed casts parameters and leaves buffers as they are: a bias in fp32 would make logits of fp32."""
    model = GPTSanRun(settings(folder, tmp_path / "run", "precision.dtype=bf16")).model()
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    assert model(torch.zeros(1, 8, dtype=torch.long)).logits.dtype == torch.bfloat16


def test_a_new_model_is_trained_from_scratch(folder, tmp_path):
    shape = {
        "vocab_size": 430, "max_position_embeddings": 48, "d_model": 16, "d_ff": 32, "d_ext": 24, "d_spout": 8, "num_switch_layers": 1,
        "num_heads": 2, "num_experts": 2,
    }  # fmt: skip
    chosen = settings(folder, tmp_path / "run", "engine.max_steps=2", "spout.mode=none", "launch.ranks=1")
    values = config.to_dict(chosen) | {"model": {"shape": shape}}
    values["data"]["tokenizer"] = str(folder / "words")
    run = train(GPTSanRun(config.build(GPTSanRunConfig, values)))
    report = export(run.folder, tmp_path / "model")
    model = GPTSanForCausalLM.from_pretrained(tmp_path / "model")
    assert report["frozen"] == 9 and model.config.eos_token_id == 429  # the spout, which is not fed


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.ignore={}/unknown.json"], "names model.blocks.0"),
        (["model.ignore={}/all.json", "spout.mode=none"], "leaves nothing to train"),
        (["model.checkpoint={}/short", "model.ignore=null"], "need 41 positions"),
        (["data.tokenizer={}/others"], "another tokenizer"),
    ],
)
def test_what_makes_no_sense_is_one_line(folder, tmp_path, overrides, words):
    names = list(read_tensors(folder / "stage"))
    (folder / "unknown.json").write_text(json.dumps(["model.embed_tokens.weight", "model.blocks.0"]))
    (folder / "all.json").write_text(json.dumps([name for name in names if name != "final_logits_bias"]))
    build_vocabulary(["別の語彙を作る。" * 3], 400, folder / "others", 0.0)
    (folder / "short").mkdir(exist_ok=True)
    shape = json.loads((folder / "base" / "config.json").read_text()) | {"max_position_embeddings": 40}
    (folder / "short" / "config.json").write_text(json.dumps(shape))
    for file in ("vocab.txt", "emoji.json"):
        (folder / "short" / file).write_bytes((folder / "words" / file).read_bytes())
    with pytest.raises(CourseError, match=words):
        train(GPTSanRun(settings(folder, tmp_path / "run", *(each.format(folder) for each in overrides))))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_names_are_matched_exactly(folder):
    given = settings(folder, folder / "run", "model.ignore=base")
    frozen = given.frozen(GPTSanConfig(num_switch_layers=2, num_ext_layers=9))
    assert {name.split(".")[2] for name in frozen if ".blocks." in name} == {"0", "1"}


def test_spout_modes():
    rng = np.random.default_rng(0)
    assert spout_vector("onehot", 11, 8, rng).tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert len(set(spout_vector("uniform", 3, 8, rng).tolist())) == 8


def test_each_epoch_has_each_example_once_in_an_order_of_its_own(folder):
    examples = GPTSanRun(settings(folder, folder / "run")).examples()
    samples = Samples(examples, 2 * len(examples), 7, "onehot", 8)
    seen = [tuple(samples[index]["x"]) for index in range(len(samples))]
    first, second = seen[: len(examples)], seen[len(examples) :]
    assert sorted(first) == sorted(second) and first != second
    assert all(sample["spout"][sample["i"]] == 1 for sample in map(samples.__getitem__, range(5)))


def test_the_loss_counts_what_is_learned():
    logits = torch.randn(2, 3, 5)
    targets = torch.tensor([[1, -1, 2], [-1, -1, 4]])
    picked = [logits[0, 0].log_softmax(-1)[1], logits[0, 2].log_softmax(-1)[2], logits[1, 2].log_softmax(-1)[4]]
    loss, log_z = cross_entropy(logits, targets)
    assert loss.item() == pytest.approx(-sum(value.item() for value in picked) / 3, rel=1e-5)
    expected = sum(logits[at].logsumexp(-1).item() ** 2 for at in ((0, 0), (0, 2), (1, 2))) / 3
    assert log_z.item() == pytest.approx(expected, rel=1e-5)
    assert cross_entropy(logits, torch.full((2, 3), -1))[0].item() == 0

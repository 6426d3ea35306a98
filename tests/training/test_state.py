"""Checkpoints: the state of a run by parameter name, from any ZeRO stage and number of ranks, and those of earlier versions."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.checkpoints import deepspeed_shards, state_files, training_state
from course_lib.checkpoints.state_files import WEIGHT, key
from course_lib.errors import CourseError
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import checkpoint, engines, state
from course_lib.training.ranks import Rank
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from tests.training import ranks

FIXTURES = Path(__file__).with_name("fixtures")
DIGESTS: dict[str, dict[str, str]] = json.loads((FIXTURES / "digests.json").read_text())
SCRIPT = Path(__file__).with_name("state_ranks.py")
# The cases of state_ranks.py, which imports DeepSpeed.
NAMES = (
    "0 fp32", "0 bf16", "0 fp16", "0 muon", "1 fp32", "1 bf16", "1 bf16 offload", "2 fp32", "2 bf16", "2 fp32 offload", "2 bf16 offload",
    "2 fp16", "3 fp32", "3 fp32 persistent", "3 bf16", "3 bf16 persistent", "3 bf16 offload", "3 fp32 offload", "3 fp16", "1 bf16 first",
    "2 fp32 first", "3 fp32 first",
)  # fmt: skip
# Largest difference of the next losses, as a share. In fp16, a step may overflow on one rank and not on two.
NOISE = {"fp32": 1e-5, "muon": 1e-5, "bf16": 2e-4, "fp16": 2e-2}
# The checkpoints that state_ranks.py saves → the number of ranks. `b` and `c` are loaded from `a`, `d` from `b`, `e` from `c`.
SAVED = {"a": 2, "b": 1, "c": 4, "d": 2, "e": 2}


def same(one: Any, other: Any) -> bool:
    """Whether two training states have the same weights, moments and counts. DeepSpeed casts frozen weights, too."""
    counts = [(each.updates, each.dtype, each.loss_scale, each.shared) for each in (one, other)]
    pairs = [(tensor.contiguous(), other.tensors[name].contiguous()) for name, tensor in one.tensors.items()]
    equal = all(torch.equal(a.float(), b.float()) for a, b in pairs)
    return counts[0] == counts[1] and one.tensors.keys() == other.tensors.keys() and equal


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of two ranks, which one rank and four ranks loaded and saved, and then two ranks again."""
    out = tmp_path_factory.mktemp("saved")
    for number, pairs in ((2, ["new:a"]), (1, ["a:b", "deepspeed:f"]), (4, ["a:c"]), (2, ["b:d", "c:e"])):
        ranks.launch(SCRIPT, str(out), *pairs, ranks=number, groups=len(NAMES) * len(pairs))
    return out


@pytest.mark.rehearse
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_ranks_loads_what_any_other_saved(saved: Path, name: str) -> None:
    first = state_files.read(saved / name / "a")
    kinds = {each.rpartition("/")[2] for each in first.tensors}
    moments = {"exp_avg", "exp_avg_sq", "momentum"} if "muon" in name else {"exp_avg", "exp_avg_sq"}
    assert kinds == {WEIGHT} | (set() if "first" in name else moments)
    if "fp16" in name:
        assert first.loss_scale and first.loss_scale.skipped and first.updates == 6 - first.loss_scale.skipped
    else:
        assert first.updates == (0 if "first" in name else 2)
    expected = json.loads((saved / name / "a.json").read_text())
    for other, number in SAVED.items():
        found = state_files.read(saved / name / other)
        assert found.ranks == number == checkpoint.ranks_of(saved / name / other)
        assert found.facts["seconds"] == 1.5 and same(first, found)
        # The forward pass has the fp32 weights, rounded.
        for each, weight in torch.load(saved / name / f"{other}.pt").items():
            assert torch.equal(weight, first.tensors[key(each, WEIGHT)].contiguous().to(weight.dtype))
        following = json.loads((saved / name / f"{other}.json").read_text())
        assert following["losses"] == pytest.approx(expected["losses"], rel=NOISE[name.split()[1]])
    # Each rank draws the same numbers as before, also after four ranks: the first two of them went on with these.
    after_four = json.loads((saved / name / "c.json").read_text())["draws"]
    assert after_four[:2] == json.loads((saved / name / "e.json").read_text())["draws"] == expected["draws"]
    assert len({tuple(draw) for draw in after_four}) == 4
    if "offload" not in name:
        # DeepSpeed's AdamW for the CPU multiplies up its bias correction, and loses that product with the process.
        assert json.loads((saved / name / "e.json").read_text())["losses"] == expected["losses"]


@pytest.mark.rehearse
@pytest.mark.parametrize("name", [name for name in NAMES if name[0] != "0"])
def test_what_deepspeed_saves_itself_is_the_same_state(saved: Path, name: str) -> None:
    """Both by DeepSpeed's functions and in DeepSpeed's own files, which the earlier version wrote."""
    first, earlier = state_files.read(saved / name / "a"), training_state.read(saved / name / "deepspeed")
    assert same(first, earlier) and checkpoint.ranks_of(saved / name / "deepspeed") == 2
    # From these files, one rank went on.
    assert same(first, state_files.read(saved / name / "f"))
    losses = (json.loads((saved / name / f"{each}.json").read_text())["losses"] for each in ("b", "f"))
    assert next(losses) == next(losses)


ALONE = Rank(number=0, ranks=1, local=0, nodes=1, device=torch.device("cpu"))


def engine(*overrides: str, frozen: bool = False) -> Any:
    """An engine without DeepSpeed with the model of the fixtures."""
    values: dict[str, Any] = {
        "batch": {"global_size": 4, "micro_size": 4},
        "optimizer": {"weight_decay": 0.1},
        "precision": {"dtype": "fp32"},
        "zero": {"stage": 0},
        "launch": {"device": "cpu"},
        "data": {"input": ["tokens"], "tokenizer": "tokenizer"},
    }
    chosen = config.build(PretrainConfig, values, overrides)
    model = build_model(
        ModelConfig(vocab_size=40, hidden_size=5, num_layers=1, num_attention_heads=1, max_position_embeddings=8)
    )
    if frozen:
        model.transformer.wpe.weight.requires_grad_(False)
        model.transformer.wpe.weight.data = model.transformer.wpe.weight.data.bfloat16()
        model.register_buffer("marks", torch.arange(3, dtype=torch.uint8))
        model.register_buffer("not_saved", torch.ones(2), persistent=False)
    run: Any = SimpleNamespace(settings=chosen)
    made = engines.build(run, model, chosen.batch.resolve(1), ALONE)
    made.train(True)
    return made


def take(engine: Any, steps: int) -> list[float]:
    losses = []
    for step in range(steps):
        tokens = torch.randint(40, (4, 8), generator=torch.Generator().manual_seed(step))
        with engine.precision():
            loss = engine.module(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step(1e-2)
        losses.append(loss.item())
    return losses


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:12]


def state_of(engine: Any) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for name, parameter in engine.model.named_parameters():
        moments = {kind: value for kind, value in engine.optimizer.state[parameter].items() if kind != "step"}
        found |= {key(name, kind): value for kind, value in ({WEIGHT: parameter} | moments).items()}
    return found


@pytest.mark.parametrize("case", DIGESTS)
def test_a_checkpoint_of_an_earlier_version_is_loaded(case: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / case, tmp_path / "old")
    for number in (0, 1):
        shutil.copy(FIXTURES / "2-fp32" / f"rng_state_{number}.pth", tmp_path / "old")
    stage, dtype = case.split("-")
    made = engine(f"precision.dtype={dtype}")
    assert state.load(made, tmp_path / "old", ALONE) == {"step": 2}
    assert {name: digest(tensor) for name, tensor in state_of(made).items()} == DIGESTS[case]
    # DeepSpeed without ZeRO began with an update without gradients in 16 bits.
    updates = 3 if case == "0-bf16" else 2
    assert {int(each["step"]) for each in made.optimizer.state.values()} == {updates}
    if dtype == "fp16":
        assert (made.scale.value, made.scale.good_steps, made.scale.tolerated, made.scale.skipped) == (2.0**14, 2, 2, 0)
    weights = training_state.read_weights(tmp_path / "old")
    assert weights.trained_as == dtype and weights.tensors.keys() > {"lm_head.weight", "transformer.wte.weight"}
    assert weights.kind == ("fp32 master weights" if stage != "0" else f"{dtype} weights")
    # It goes on, and what it saves now is loaded, with the dropout masks.
    take(made, 1)
    state.save(made, tmp_path / "new", ALONE, {"step": 3})
    expected = take(made, 2)
    again = engine(f"precision.dtype={dtype}")
    assert state.load(again, tmp_path / "new", ALONE) == {"step": 3}
    assert np.isfinite(expected).all() and take(again, 2) == expected


def test_the_random_numbers_of_an_earlier_version_go_on(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "2-fp32", tmp_path / "old")
    states = torch.load(tmp_path / "old" / "rng_state_0.pth", weights_only=False)
    state.load(engine(), tmp_path / "old", ALONE)
    drawn = random.random(), torch.rand(3)
    random.setstate(states["python"])
    torch.set_rng_state(states["cpu"])
    assert (random.random(), torch.rand(3).tolist()) == (drawn[0], drawn[1].tolist())


def test_the_files_have_whole_tensors_by_name(tmp_path: Path) -> None:
    made = engine("precision.dtype=bf16", frozen=True)
    take(made, 2)
    state.save(made, tmp_path, ALONE, {"step": 2, "seconds": 0.5})
    tensors = load_file(tmp_path / "state-00000.safetensors")
    model = made.model.state_dict()
    trained = {name for name, parameter in made.model.named_parameters() if parameter.requires_grad}
    assert tensors.keys() == {
        *(key(name, kind) for name in trained for kind in (WEIGHT, "exp_avg", "exp_avg_sq")),
        "transformer.wpe.weight/weight", "marks/weight",
    }  # fmt: skip
    assert all(torch.equal(tensor, model[name[:-7]]) for name, tensor in tensors.items() if name.endswith("/weight"))
    assert tensors["transformer.wpe.weight/weight"].dtype == torch.bfloat16
    assert tensors["marks/weight"].tolist() == [0, 1, 2]
    weights = training_state.read_weights(tmp_path)
    assert (weights.kind, weights.trained_as) == ("fp32 master weights", "bf16")
    assert weights.tensors["lm_head.weight"] is weights.tensors["transformer.wte.weight"]
    state.save(made, tmp_path, ALONE, {"step": 2}, frozen=False)
    found = training_state.read(tmp_path)
    assert found.tensors.keys() == {name for name in tensors if name.rpartition("/")[0] in trained}
    # A model whose frozen weights come from elsewhere
    state.load(engine(frozen=True), tmp_path, ALONE)


def test_a_save_of_the_same_step_leaves_no_file_of_a_killed_one(tmp_path: Path) -> None:
    made = engine()
    for name in ("state-00003.safetensors", "rng-3.pt", "state.json", "note.txt"):
        (tmp_path / name).write_text("killed")
    state.save(made, tmp_path, ALONE, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "note.txt",
        "rng-0.pt",
        "state-00000.safetensors",
        "state.json",
    ]


def test_a_rank_that_is_new_draws_other_numbers(tmp_path: Path) -> None:
    made = engine()
    state.save(made, tmp_path, ALONE, {})
    draws = []
    for number in range(3):
        state._restore_generators(tmp_path, replace(ALONE, number=number, ranks=3), ranks=1)
        draws.append((random.random(), np.random.random(), torch.rand(()).item()))
    state.load(made, tmp_path, ALONE)
    assert draws[0] == (random.random(), np.random.random(), torch.rand(()).item())
    assert len({draw for draws_of_rank in draws for draw in draws_of_rank}) == 9


class Malicious:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made",)


def edited(**changes: Any) -> Callable[[Path], Any]:
    def edit(folder: Path) -> None:
        content = json.loads((folder / "state.json").read_text()) | changes
        (folder / "state.json").write_text(json.dumps(content))

    return edit


def cut(name: str, size: int) -> Callable[[Path], Any]:
    return lambda folder: os.truncate(folder / name, size)


def evil(folder: Path) -> None:
    torch.save(torch.load(folder / "rng-0.pt") | {"python": Malicious()}, folder / "rng-0.pt")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut("state-00000.safetensors", 5000), r"state-00000\.safetensors: not a safetensors file, or cut short$"),
        (cut("state-00000.safetensors", 0), r"state-00000\.safetensors: the file is empty$"),
        (cut("state.json", 100), r"state\.json: not readable as JSON"),
        (cut("rng-0.pt", 2000), r"rng-0\.pt: not a PyTorch checkpoint, or cut short$"),
        (lambda folder: (folder / "state-00000.safetensors").unlink(), r"state-00000\.safetensors: no such file$"),
        (lambda folder: (folder / "rng-0.pt").unlink(), r"rng-0\.pt: no such file$"),
        (lambda folder: torch.save({"python": 1}, folder / "rng-0.pt"), r"rng-0\.pt: not the states of random gen"),
        (evil, r"rng-0\.pt: not loaded, it asks for posix\.mkdir, which could run code$"),
        (edited(format=2), r"state\.json: format 2, which this version of the course cannot read$"),
        (edited(format=None), r"state\.json: format: found null; allowed: a whole number$"),
        (edited(dtype="int4"), r"state\.json: dtype: found 'int4'; allowed: fp32, bf16, fp16$"),
        (edited(loss_scale={"value": 1}), r"state\.json: loss_scale: found \{\"value\": 1\}$"),
        (edited(files={"transformer.wte.weight": "../state-00000.safetensors"}), r"a trained parameter that the ch"),
        (edited(files={"x": "state-00000.safetensors"}), r"state-00000\.safetensors: x is missing$"),
        (lambda folder: (folder / "state.json").unlink(), "no state.json and no .*, not a checkpoint$"),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line(
    damage: Callable[[Path], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = engine()
    take(made, 1)
    state.save(made, tmp_path / "checkpoint-1", ALONE, {"step": 1})
    damage(tmp_path / "checkpoint-1")
    with pytest.raises(CourseError, match=message) as caught:
        state.load(engine(), tmp_path / "checkpoint-1", ALONE)
    assert "\n" not in str(caught.value) and "checkpoint-1" in str(caught.value)
    assert not (tmp_path / "made").exists()


def test_another_model_is_refused(tmp_path: Path) -> None:
    made, other = engine(), engine()
    state.save(made, tmp_path, ALONE, {})
    other.model.transformer.ln_f.bias = torch.nn.Parameter(torch.ones(7))
    with pytest.raises(CourseError, match=r"transformer\.ln_f\.bias/weight has the shape \[5\], expected \[7\]$"):
        state.load(other, tmp_path, ALONE)
    other.model.added = torch.nn.Parameter(torch.ones(7))
    with pytest.raises(CourseError, match="added: a trained parameter that the checkpoint does not have$"):
        state.load(other, tmp_path, ALONE)


def test_reading_needs_no_deepspeed() -> None:
    """Its import alone takes seconds."""
    code = """
import sys
from pathlib import Path
from course_lib.checkpoints import training_state
from course_lib.training import state
training_state.read_weights(Path(sys.argv[1]))
assert "deepspeed" not in sys.modules and "transformers" not in sys.modules
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(FIXTURES / "3-fp32")], check=True, env=environment)


def padded(whole: torch.Tensor, number: int) -> list[torch.Tensor]:
    return list(torch.nn.functional.pad(whole, (0, -len(whole) % number)).chunk(number))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 5))
def test_flat_groups_of_earlier_versions_are_cut_by_parameter(sizes: list[int], number: int) -> None:
    """For any number of ranks: a group padded at its end (stages 1 and 2), and each parameter padded (stage 3)."""
    values = torch.arange(1.0, sum(sizes) + 1)
    parameters = values.split(sizes)
    shapes = {f"p{each}": torch.Size([size]) for each, size in enumerate(sizes)}

    def moments(flat: torch.Tensor) -> dict[str, Any]:
        return {"state": {0: {"step": torch.tensor(7.0), "exp_avg": -flat, "exp_avg_sq": flat * flat}}}

    group, two, three = padded(values, 2 * number), [], []
    group = [torch.cat(group[2 * rank : 2 * rank + 2]) for rank in range(number)]
    for rank in range(number):
        # DeepSpeed saves the moments with the padding and the weights without it.
        weights = group[rank][: max(0, len(values) - rank * len(group[0]))]
        two.append({"single_partition_of_fp32_groups": [weights], "base_optimizer_state": moments(group[rank])})
        flat = torch.cat([padded(parameter, number)[rank] for parameter in parameters])
        three.append({"fp32_flat_groups": [flat], "optimizer_state_dict": moments(flat)})
    for found in (deepspeed_shards._stages_1_and_2([shapes], two), deepspeed_shards._stage_3([shapes], three)):
        for each, parameter in enumerate(parameters):
            assert torch.equal(found[f"p{each}/weight"].contiguous(), parameter)
            assert torch.equal(found[f"p{each}/exp_avg"].contiguous(), -parameter)
            assert torch.equal(found[f"p{each}/exp_avg_sq"].contiguous(), parameter * parameter)


@given(
    st.lists(st.tuples(st.sampled_from(list(state_files.DTYPES)), st.lists(st.integers(0, 4), max_size=3)), max_size=6)
)
def test_the_writer_writes_what_safetensors_reads(planned: list[tuple[torch.dtype, list[int]]]) -> None:
    folder = Path(os.environ["COURSE_WORKSPACE"])
    plan = {f"t{each}/é": spec for each, spec in enumerate(sorted(planned, key=lambda spec: -spec[0].itemsize))}
    tensors = {name: (torch.rand(shape) * 9).to(dtype) for name, (dtype, shape) in plan.items()}
    with state_files.writer(folder / "t.safetensors", plan) as writer:
        for tensor in tensors.values():
            writer.write(tensor)
    found = load_file(folder / "t.safetensors")
    assert found.keys() == tensors.keys()
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in tensors.items()
    )


def test_ranks_write_about_as_much(tmp_path: Path) -> None:
    owners = state._owners({"a": 100, "b": 60, "c": 50, "d": 1}, 2)
    assert owners == {"a": 0, "b": 1, "c": 1, "d": 0}

"""A run in fp16, which only cards are fast at: the CPU computes it, too, with the same loss scale and skipped steps."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.checkpoints.training_state import read_weights
from course_lib.errors import CourseError
from course_lib.pretrain.export import export
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.training import checkpoint
from course_lib.training.loop import train
from course_lib.training.loss_scale import LossScale
from course_lib.training.settings import PrecisionConfig

from tests.pretrain import test_training as pretrain
from tests.weights import read_tensors


def test_the_loss_scale_falls_until_gradients_fit_and_the_checkpoint_is_exported(tmp_path: Path) -> None:
    settings = pretrain.settings(
        pretrain.inputs(tmp_path), tmp_path / "run", "launch.ranks=1", "engine.max_steps=12", "engine.save_steps=3",
        "engine.keep_checkpoints=null", "engine.eval_freq=0", "engine.test_iters=0", "engine.tracking=[]",
        "precision.dtype=fp16", "precision.initial_scale_power=24", "model.hidden_dropout_prob=0.1",
    )  # fmt: skip
    trained = train(Gpt2(settings), on_message=lambda _: None)
    scales = [entry["loss_scale"] for entry in trained.log]
    skipped = [entry["skipped_steps"] for entry in trained.log]
    # The first overflow is tolerated (precision.hysteresis 2), and each other one halves the scale.
    assert scales[0] == 2**24 and skipped[0] == 1
    assert 3 < skipped[-1] < 12 and scales[-1] == 2 ** (25 - skipped[-1])
    # A skipped step has no norm, and the others have one.
    measured = [entry["step"] for entry in trained.log if "grad_norm" in entry]
    assert measured == [*range(skipped[-1] + 1, 13)]
    assert all(math.isfinite(entry["loss"]) for entry in trained.log)
    assert trained.log[-1]["loss"] < trained.log[0]["loss"]

    # Resumed while the scale falls, the run is the same.
    before = read_weights(checkpoint.at(trained.folder, 12)).tensors
    before = {name: tensor.contiguous().clone() for name, tensor in before.items()}
    for path in checkpoint.newer_than(trained.folder, 3):
        path.rename(tmp_path / path.name)
    again = train(Gpt2(settings), resume=True, on_message=lambda _: None)
    timeless = [[each["loss"], each["loss_scale"], each["skipped_steps"]] for each in again.log]
    assert timeless == [[each["loss"], each["loss_scale"], each["skipped_steps"]] for each in trained.log]
    after = read_weights(checkpoint.at(trained.folder, 12)).tensors
    assert all(torch.equal(before[name], after[name].contiguous()) for name in before)

    report = export(trained.folder, tmp_path / "model")
    assert (report["weights"], report["dtype"]) == ("fp32 master weights", "fp16")
    exported = read_tensors(tmp_path / "model")
    assert all(tensor.dtype == torch.float16 and tensor.isfinite().all() for tensor in exported.values())


@pytest.fixture
def deepspeeds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """DeepSpeed's class, without a process group."""
    from deepspeed.runtime.fp16 import loss_scaler

    monkeypatch.setattr(loss_scaler.dist, "get_rank", lambda: 1)
    return loss_scaler.DynamicLossScaler


@pytest.mark.parametrize("often", [0.02, 0.3, 0.6])
@pytest.mark.parametrize("hysteresis", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 2, 7])
def test_the_loss_scale_is_that_of_deepspeed(deepspeeds: Any, often: float, hysteresis: int, window: int) -> None:
    """Over a random sequence of overflows, and with the state of a checkpoint in the middle."""
    wanted = PrecisionConfig(
        dtype="fp16", initial_scale_power=32, loss_scale_window=window, hysteresis=hysteresis, min_loss_scale=2.0**-60
    )
    theirs = deepspeeds(2.0**32, window, 2.0**-60, hysteresis, False)
    ours = LossScale(wanted)
    random = torch.Generator().manual_seed(3)
    for step in range(80):
        overflows = bool(torch.rand((), generator=random) < often)
        theirs.update_scale(overflows)
        ours.update(overflows)
        assert ours.value == theirs.cur_scale, step


def test_no_smaller_loss_scale_than_the_smallest(deepspeeds: Any) -> None:
    """Where DeepSpeed ends by an error, too."""
    ours = LossScale(PrecisionConfig(dtype="fp16", initial_scale_power=3, min_loss_scale=2.0, hysteresis=1))
    theirs = deepspeeds(8.0, 1000, 2.0, 1, False)
    for _ in range(2):
        ours.update(True)
        theirs.update_scale(True)
    assert ours.value == theirs.cur_scale == 2
    with pytest.raises(Exception, match="already at minimum"):
        theirs.update_scale(True)
    with pytest.raises(CourseError, match="^gradients overflow at the smallest loss scale, 2"):
        ours.update(True)


def test_a_fixed_loss_scale_stays() -> None:
    ours = LossScale(PrecisionConfig(dtype="fp16", loss_scale=128.0, loss_scale_window=1))
    for overflows in (True, False, True, True, False):
        ours.update(overflows)
    assert (ours.value, ours.skipped) == (128, 3)

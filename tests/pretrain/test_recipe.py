"""The loop trains as the recipe does: `transformers.Trainer` with DeepSpeed, on the same model and samples."""

import json
from pathlib import Path

import pytest
from course_lib.pretrain import recipe
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.training.loop import train
from torch.multiprocessing.spawn import spawn

from tests.pretrain import test_training as pretrain

SETTINGS = (
    "launch.ranks=1", "engine.max_steps=20", "engine.logging_freq=1", "engine.eval_freq=0", "engine.test_iters=0",
    "engine.tracking=[]", "optimizer.weight_decay=0", "optimizer.lr.decay=linear", "optimizer.lr.max=0.001", "optimizer.lr.min=0",
)  # fmt: skip


@pytest.mark.parametrize(("architecture", "packing"), [("gpt2", "best-fit"), ("gpt-neox", "stream")])
def test_losses_are_those_of_the_trainer_with_deepspeed(tmp_path: Path, architecture: str, packing: str) -> None:
    source = pretrain.inputs(tmp_path)
    chosen = f"model.architecture={architecture}", f"data.packing={packing}"
    settings = pretrain.settings(source, tmp_path / "run", *SETTINGS, *chosen)
    spawn(recipe.train, (settings, tmp_path), nprocs=1)
    theirs = json.loads((tmp_path / "losses.json").read_text())

    trained = train(Gpt2(settings))
    ours = [entry["loss"] for entry in trained.log if entry["kind"] == "train"]
    assert len(ours) == 20 and ours[-1] < ours[0] - 0.04
    # The Trainer logs losses in fp32.
    assert ours == pytest.approx(theirs, rel=1e-4)

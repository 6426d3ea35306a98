"""Processes that join as ranks, and leave: in this process, by starter.py, by DeepSpeed's launcher and by PyTorch's."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import starter
from course_lib.training.ranks import joined, started_as_rank

from tests.training import fake_course
from tests.training.test_starter import end

__all__ = ["end"]
OFFLOAD = ("zero.stage=1", "zero.offload_optimizer=true")


def settings(*overrides: str) -> PretrainConfig:
    return config.build(PretrainConfig, {"launch": {"device": "cpu"}}, overrides)


def test_one_rank_needs_no_process_group() -> None:
    with joined(settings("zero.stage=3")) as rank:
        assert (rank.number, rank.ranks, rank.first, rank.first_of_node) == (0, 1, True, True)
        assert rank.any(True) and not rank.any(False) and rank.broadcast("a") == "a"
        assert rank.sum(torch.ones(2)).tolist() == [1, 1]
        rank.barrier()
        assert not dist.is_initialized()


def trained_by_deepspeed() -> float:
    import deepspeed

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    chosen = {"train_batch_size": 2, "zero_optimization": {"stage": 1}}
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=chosen, dist_init_required=False)
    for _ in range(3):
        loss = engine(torch.ones(2, 4)).square().mean()
        engine.backward(loss)
        engine.step()
    return loss.item()


@pytest.mark.parametrize("fails", [False, True])
def test_deepspeed_with_one_rank_leaves_the_process_as_it_was(fails: bool) -> None:
    before, hook, losses = dict(os.environ), sys.excepthook, []
    for _ in range(2):
        try:
            with joined(settings(*OFFLOAD)):
                losses.append(trained_by_deepspeed())
                if fails:
                    raise KeyError
        except KeyError:
            pass
        assert dict(os.environ) == before and sys.excepthook is hook
        assert not dist.is_initialized() and not started_as_rank()
    assert losses[0] == losses[1]


JOIN = """
import torch
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training.ranks import joined, started_as_rank
settings = config.build(PretrainConfig, {"launch": {"device": "cpu"}}, ["zero.stage=0"])
"""
TALK = f"""{JOIN}
with joined(settings) as rank:
    assert started_as_rank() and rank.ranks == 2 and rank.device.type == "cpu"
    said = [rank.sum(torch.ones(1) + rank.number).item(), rank.any(rank.number == 1), rank.any(False), rank.broadcast(rank.number)]
    rank.barrier()
    # One write, so that the lines of two ranks on one stream stay lines.
    os.write(1, (str(rank.number) + " " + str(said) + "\\n").encode())
assert not torch.distributed.is_initialized()
"""


def test_ranks_talk_to_each_other(end: Callable[..., str]) -> None:
    said: list[str] = []
    assert end(TALK, on_message=said.append) == "well"
    assert said == ["0 [3.0, True, False, 0]"]


LAUNCHERS = {
    "deepspeed": ["-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--no_local_rank", "--master_port"],
    "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"],
}


@pytest.mark.rehearse
@pytest.mark.parametrize("name", LAUNCHERS)
def test_other_launchers_start_ranks_too(tmp_path: Path, name: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"engine: {{output_dir: {tmp_path}}}\n")
    words = [fake_course.__file__, "pretrain", "-c", str(file)]
    command = [sys.executable, *LAUNCHERS[name], str(starter.free_port()), *words]
    variables = {fake_course.TEXT: TALK, "DS_ACCELERATOR": "cpu", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {"0 [3.0, True, False, 0]", "1 [3.0, True, False, 0]"} <= set(done.stdout.splitlines())


def test_the_others_notice_a_rank_that_fails(end: Callable[..., str]) -> None:
    text = f"{JOIN}\nwith joined(settings) as rank:\n  rank.barrier(); report('the loss is nan') if rank.number else rank.barrier()"
    assert end(text) == "1 the loss is nan"


def test_all_ranks_agree_to_stop_after_the_same_step(end: Callable[..., str], tmp_path: Path) -> None:
    text = f"""{JOIN}
with joined(settings) as rank, interruptions.listening() as request:
    for number in range(1, 10**6):
        step(number)
        if rank.any(bool(request.cause)):
            break
    print("rank", rank.number, "stops at", number, file=sys.stderr)
    save(number)
    error = request.error(number, 10, folder)
report(str(error), error.exit_code)
"""
    said = end(text, on_message=lambda line: os.kill(os.getpid(), signal.SIGTERM) if line == "step 3" else None)
    lines = [line.split() for line in (tmp_path / "run" / "output.txt").read_text().splitlines() if "stops at" in line]
    assert len(lines) == 2 and lines[0][-1] == lines[1][-1]
    assert said.startswith(f"143 terminated at step {lines[0][-1]} of 10; --resume continues from")

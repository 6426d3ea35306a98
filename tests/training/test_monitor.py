"""How a run's end is told, from what its ranks said; the command that starts it; which checkpoints count."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import checkpoint, events, launch, nodes
from course_lib.training.monitor import Monitor
from course_lib.training.nodes import HERE, Nodes


def end_of(tmp_path: Path, *said: Any, ranks: int = 2, code: int = 1, output: str = "") -> str:
    """The line with which a launcher's end is reported that printed these events."""
    lines = [events.MARK + json.dumps(event) for event in said]
    script = f"print({output!r})\nfor line in {lines!r}: print('host1: ' + line)\nraise SystemExit({code})"
    settings = config.build(PretrainConfig, {"engine": {"output_dir": str(tmp_path)}})
    try:
        Monitor(Gpt2(settings), Nodes({HERE: ranks}), 10, lambda _: None).follow([sys.executable, "-c", script], {})
    except CourseError as error:
        return str(error)
    return "well"


FINISHED = [{"kind": "finished", "rank": rank} for rank in range(2)]
TERMINATED = {"kind": "terminated", "rank": 0}


def error(rank: int, why: str, message: str = "it said this") -> Any:
    return {"kind": "error", "rank": rank, "why": why, "message": message}


def test_the_first_cause_is_named(tmp_path):
    assert end_of(tmp_path, *FINISHED, code=0) == "well"
    assert end_of(tmp_path, error(0, "lost"), error(1, "user", "the loss is nan")) == "the loss is nan"
    said = end_of(tmp_path, {"kind": "step", "step": 4}, error(1, "memory"), TERMINATED)
    assert said.startswith("out of memory on rank 1 at step 4: the planner expects") and "model.recompute=full" in said
    assert end_of(tmp_path, error(0, "lost")).startswith("rank 1 ended without an error message")
    assert end_of(tmp_path, TERMINATED).startswith("rank 1 ended without an error message")
    assert end_of(tmp_path, error(0, "lost"), error(1, "crash", "KeyError")).startswith("rank 1 failed: KeyError")
    assert end_of(tmp_path, error(0, "lost", "NCCL"), error(1, "lost", "NCCL")).startswith("rank 0 failed: NCCL")
    assert "before training began: ssh: no route" in end_of(tmp_path, output="ssh: no route")
    # an exit code of 0 is no proof
    assert end_of(tmp_path, FINISHED[0], code=0).startswith("rank 1 ended without an error message")


def test_the_hostfile_decides_ranks_and_command(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    hosts = tmp_path / "hosts"
    hosts.write_text("# the cluster\nworker-1 slots=8\n\nworker-2 slots=8\n", encoding="utf8")
    settings = config.build(
        PretrainConfig, {"launch": {"hostfile": str(hosts), "master_addr": "10.0.0.1", "master_port": 29500}}
    )
    both = nodes.find(settings)
    assert (both.ranks, both.of(7), both.of(8), both.started_by) == (16, "worker-1", "worker-2", "ssh")
    command = " ".join(launch.command(Gpt2(settings), both, 200, 300))
    options = "--master_port 29500 --no_local_rank --master_addr 10.0.0.1"
    assert f"deepspeed.launcher.runner --hostfile {hosts} {options}" in command
    assert command.endswith(f"worker.py course_lib.pretrain.gpt2:Gpt2 {Path.cwd()}/output 200 300")
    assert "--world_info" not in command


def test_the_gpus_that_are_visible_are_taken(monkeypatch):
    def devices() -> dict[str, list[int | str]]:
        return json.loads(base64.urlsafe_b64decode(launch.one_node({HERE: 2})[-1]))

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5")
    assert devices() == {"localhost": [2, 3]}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-4f1,GPU-8a2")
    assert devices() == {"localhost": ["MIG-4f1", "GPU-8a2"]}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1,-1")
    assert devices() == {"localhost": [0, 1]}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert devices() == {"localhost": [0, 1]}


def make(run: Path, step: int, whole: bool = True) -> Path:
    folder = run / checkpoint.FOLDER / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"1234")
    if whole:
        checkpoint.mark_complete(folder)
    return folder


def test_only_whole_checkpoints_count(tmp_path):
    made = {step: make(tmp_path, step) for step in (5, 10, 100)}
    make(tmp_path, 20, whole=False)
    assert checkpoint.whole_checkpoints(tmp_path) == [made[100], made[10], made[5]]
    (made[100] / "weights").write_bytes(b"12")  # cut short
    (made[10] / "weights").unlink()
    assert checkpoint.whole_checkpoints(tmp_path) == [made[5]]
    (made[5] / checkpoint.COMPLETE).write_text("{", encoding="utf8")
    assert checkpoint.whole_checkpoints(tmp_path) == []


def test_pruning_keeps_the_latest_whole_ones(tmp_path):
    for step in (1, 2, 3):
        make(tmp_path, step)
    make(tmp_path, 4, whole=False)
    checkpoint.prune(tmp_path, keep=2)
    assert sorted(path.name for path in (tmp_path / checkpoint.FOLDER).iterdir()) == ["checkpoint-2", "checkpoint-3"]

"""Which nodes a run has, and how its ranks are started there; without ranks."""

import os
from pathlib import Path

import pytest
from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import launch, nodes

from tests.training.ranks import command_of_runner


def settings(hosts: Path, *overrides: str) -> PretrainConfig:
    return config.build(PretrainConfig, {"launch": {"hostfile": str(hosts), "device": "cpu"}}, overrides)


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("# the cluster\nnodeA slots=2\n\nnodeB slots=1  # the small one\n", encoding="utf8")
    return path


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of two nodes, as far as its script sees Slurm."""
    for name, said in (("scontrol", "nodeA\nnodeB"), ("sinfo", "10.0.0.1")):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '{said}\\n'\n", encoding="utf8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[A-B]")


def test_srun_starts_each_node_as_deepspeeds_own_runner_would(
    hosts: Path, slurm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--no_ssh", "--node_rank", "1", "--master_addr", "10.0.0.1", "--master_port", "7", "--no_local_rank"]
    theirs = " ".join(command_of_runner(monkeypatch, "--hostfile", str(hosts), *options)).replace("=", " ").split()
    hosts.write_text("nodeA slots=2\nnodeB slots=2\n", encoding="utf8")
    chosen = config.build(PretrainConfig, {"launch": {"device": "cpu", "ranks": 2, "master_port": 7}})
    found = nodes.find(chosen)
    assert found == nodes.Nodes({"nodeA": 2, "nodeB": 2}, "srun", "10.0.0.1")
    mine = launch.command(Gpt2(chosen), found, 0, 9)
    assert mine[:3] == ["srun", "--nodes=2", "--ntasks=2"] and "--no_local_rank" in mine
    for option in ("--master_addr", "--master_port"):
        assert mine[mine.index(option) + 1] == theirs[theirs.index(option) + 1], option
    assert " ".join(theirs[1:4]) in launch.START and "--node_rank=${SLURM_NODEID" in launch.START


def test_a_step_of_srun_is_one_node_or_refused(slurm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = config.build(PretrainConfig, {"launch": {"device": "cpu", "ranks": 3}})
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "1")
    assert nodes.find(chosen) == nodes.Nodes({nodes.HERE: 3})
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
    with pytest.raises(UsageError, match="^srun: not allowed"):
        nodes.find(chosen)


@pytest.mark.parametrize("line", ["b", "b slots=0", "a b slots=2", "nodeA slots=4"])
def test_a_wrong_line_of_the_hostfile_is_named(hosts: Path, line: str) -> None:
    hosts.write_text(f"nodeA slots=1\n{line}\n", encoding="utf8")
    with pytest.raises(UsageError, match=f"launch.hostfile: {hosts}, line 2"):
        nodes.find(settings(hosts))

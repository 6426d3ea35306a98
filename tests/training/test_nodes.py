"""Which nodes a run has, and how its ranks are started there; without ranks."""

import os
import shlex
from pathlib import Path

import pytest
from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import nodes, starter
from course_lib.training.watch import SRUN


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


def test_srun_starts_the_ranks_of_all_nodes(slurm: None) -> None:
    chosen = config.build(PretrainConfig, {"launch": {"device": "cpu", "ranks": 2, "master_port": 7}})
    found = nodes.find(chosen)
    assert found == nodes.Nodes({"nodeA": 2, "nodeB": 2}, "srun", "10.0.0.1")
    (command, environment) = starter.commands_of_ranks(["course"], chosen, found)[SRUN]
    assert command[:4] == ["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2"]
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"], environment["WORLD_SIZE"]) == ("10.0.0.1", "7", "4")


def test_the_hostfile_decides_the_ranks(hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(hosts, "launch.master_addr=10.0.0.1", "launch.master_port=29500")
    found = nodes.find(chosen)
    assert (found.ranks, found.first, found.started_by) == (3, "nodeA", "ssh")
    monkeypatch.setenv("COURSE_WORDS", "two words")
    monkeypatch.setenv("HF_TOKEN", "secret")
    commands = starter.commands_of_ranks(["course", "a file"], chosen, found)
    assert [words[:-1] for words, _ in commands.values()] == [
        [*nodes.SSH, name] for name in ("nodeA", "nodeA", "nodeB")
    ]
    shell = shlex.split(commands[2][0][-1])
    assert shell[:3] == ["exec", "sh", "-c"] and shell[3].endswith(" course 'a file'; exit $?")
    given = shlex.split(shell[3])
    for word in (
        "RANK=2",
        "LOCAL_RANK=0",
        "WORLD_SIZE=3",
        "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=29500",
        "COURSE_WORDS=two words",
    ):
        assert word in given
    # It would be in the list of the processes.
    assert "secret" not in shell[3]


def test_a_hostfile_with_one_node_is_this_machine(hosts: Path) -> None:
    hosts.write_text("nodeA slots=4\n", encoding="utf8")
    assert nodes.find(settings(hosts)) == nodes.Nodes({"nodeA": 4})


def test_the_first_node_of_a_hostfile_tells_its_address(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\n[ $# = 8 ] && echo '10.0.0.7 172.17.0.1'\n", encoding="utf8")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert nodes.find(settings(hosts)).address == "10.0.0.7"
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'ssh: no such host' >&2; exit 255\n", encoding="utf8")
    with pytest.raises(UsageError, match="^ssh .* nodeA hostname -I: ssh: no such host"):
        nodes.find(settings(hosts))


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

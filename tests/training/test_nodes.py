"""Which nodes a run has, how they find each other, and how they are compared; without ranks."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import events, launch, link, nodes, run_dir, worker
from course_lib.training.nodes import Nodes
from course_lib.training.task import CONFIG

from tests.training.ranks import command_of_runner


def settings(hosts: Path, *overrides: str) -> PretrainConfig:
    return config.build(PretrainConfig, {"launch": {"hostfile": str(hosts), "device": "cpu"}}, overrides)


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("# the cluster\nnodeA slots=2\n\nnodeB slots=1  # the small one\n", encoding="utf8")
    return path


NO_SSH = ("launch.no_ssh=true", "launch.master_addr=127.0.0.1")


def test_a_node_starts_as_deepspeeds_own_runner_would_start_it(hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--no_ssh", "--node_rank", "1", "--master_addr", "127.0.0.1", "--master_port", "7", "--no_local_rank"]
    theirs = " ".join(command_of_runner(monkeypatch, "--hostfile", str(hosts), *options)).replace("=", " ").split()
    chosen = settings(hosts, *NO_SSH, "launch.node_rank=1")
    mine = launch.command(Gpt2(chosen), nodes.find(chosen), 0, "d", 7)
    for option in ("--world_info", "--node_rank", "--master_addr", "--master_port"):
        assert mine[mine.index(option) + 1].rstrip("=") == theirs[theirs.index(option) + 1], option
    assert mine[:4] == theirs[:4] and "--no_local_rank" in theirs


@pytest.mark.parametrize("line", ["b", "b slots=0", "a b slots=2", "nodeA slots=4"])
def test_a_wrong_line_of_the_hostfile_is_named(hosts: Path, line: str) -> None:
    hosts.write_text(f"nodeA slots=1\n{line}\n", encoding="utf8")
    with pytest.raises(UsageError, match=f"launch.hostfile: {hosts}, line 2"):
        nodes.find(settings(hosts))


SLOTS = {"nodeA": 1, "nodeB": 1}


def meet(lead: Callable[[link.Link], Any], problem: CourseError | None = None, slots: Any = SLOTS) -> list[str]:
    """What two nodes end with: the message of an error, or ""."""
    address, ends = ("127.0.0.1", launch.free_port()), ["", ""]

    def leads() -> None:
        try:
            with link.lead(Nodes(SLOTS, 0, address), 60, lambda _: None) as leader:
                assert leader
                leader.gather(60)
                leader.tell(step=0)
                lead(leader)
        except CourseError as error:
            ends[0] = str(error)

    def follows() -> None:
        try:
            follower = link.join(Nodes(slots, 1, address), 60, problem)
            follower.send("a line of a rank\n")
            while "end" not in follower.hear():
                pass
        except CourseError as error:
            ends[1] = str(error)

    threads = [threading.Thread(target=each) for each in (leads, follows)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def test_a_problem_on_one_node_ends_both_with_its_line() -> None:
    def refuses(_leader: Any) -> None:
        raise UsageError("engine.output_dir: holds a run")

    problem = "data.input: /data/tokens.idx: no such file"
    assert meet(lambda _: None) == ["", ""]
    assert meet(lambda _: None, UsageError(problem)) == [f"nodeB: {problem}", problem]
    assert meet(refuses) == ["engine.output_dir: holds a run"] * 2
    said = meet(lambda _: None, slots={"nodeA": 1, "nodeB": 4})
    assert said[0].startswith("nodeB: has other nodes or ranks") and said[1] == said[0]


def test_a_node_that_does_not_come_is_named() -> None:
    address = ("127.0.0.1", launch.free_port())
    with (
        pytest.raises(CourseError, match="^nodeB: did not join"),
        link.lead(Nodes(SLOTS, 0, address), 60, lambda _: None) as leader,
    ):
        assert leader
        leader.gather(0.1)
    with pytest.raises(CourseError, match="^nodeA: no answer"):
        link.join(Nodes(SLOTS, 1, ("127.0.0.1", launch.free_port())), 1, None)


def test_a_node_without_heartbeat_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LOST", 2.0)

    def lead(leader: link.Link) -> None:
        reader, writer = os.pipe()
        leader.forward(writer)
        os.close(writer)
        with open(reader, "rb") as lines:
            heard.extend(lines)

    heard: list[bytes] = []
    monkeypatch.setattr(link.Link, "_beat", lambda self: self.store.add(f"{self.nodes.rank} beats", 1))
    assert meet(lead)[0] == ""
    assert heard[0] == b"a line of a rank\n"
    assert events.parse(heard[1].decode()) == {"kind": "lost", "node": 1}


def test_a_folder_that_is_another_or_old_is_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "VISIBLE", 0.1)
    with pytest.raises(worker.NodeError, match="engine.output_dir must be on a file system"):
        worker.wait_for_folder(tmp_path / "nowhere", "d", 0)
    run = tmp_path / "run"
    run.mkdir()
    for name in (CONFIG, run_dir.RESOLVED, run_dir.DEEPSPEED, run_dir.DATA):
        (run / name).write_text("{}", encoding="utf8")
    digest = run_dir.digest(run)
    worker.wait_for_folder(run, digest, 0)
    with pytest.raises(worker.NodeError, match="checkpoint-3 is not complete"):
        worker.wait_for_folder(run, digest, 3)
    (run / run_dir.RESOLVED).write_text('{"token": "of another launch"}', encoding="utf8")
    with pytest.raises(worker.NodeError, match="not those of the first node"):
        worker.wait_for_folder(run, digest, 0)

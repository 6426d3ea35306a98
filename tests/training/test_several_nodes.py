"""Two nodes on this machine without ssh: the same losses as one node, a node that is killed, and the run that goes on."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from course_lib import config
from course_lib.training import checkpoint, launch, log

from tests.pretrain import test_training as pretrain
from tests.waiting import LIMIT, until

# With dropout, so that the ranks' random generators count too. No run reaches its last step by itself.
ENDLESS = (
    "engine.max_steps=100000", "engine.save_steps=4", "engine.keep_checkpoints=null", "engine.eval_freq=0", "engine.test_iters=0",
    "engine.tracking=[]", "model.hidden_dropout_prob=0.1",
)  # fmt: skip


@dataclass
class Node:
    """A `course` command in a session of its own, and everything that it has started."""

    process: "subprocess.Popen[str]"
    run: Path

    def family(self) -> list[psutil.Process]:
        """Return the command and its descendants."""
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def wait_for_step(self, step: int) -> None:
        until(lambda: (self.run / log.FILE).exists() and losses(self.run).keys() >= {step}, self.process)

    def end(self) -> tuple[int, str, str]:
        """Return the exit code and the output once the command has ended."""
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, err


def losses(run: Path) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in log.read(run) if entry["kind"] == "train"}


def gone(processes: list[psutil.Process]) -> bool:
    return not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[Node]]]:
    """Starts the command on one node or on two, and leaves no process behind."""
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "inputs").mkdir()
    inputs = pretrain.inputs(folder / "inputs")
    (folder / "hosts").write_text("nodeA slots=1\nnodeB slots=1\n", encoding="utf8")
    started: list[tuple[Node, list[psutil.Process]]] = []

    def begin(run: Path, *overrides: str, nodes: int = 2, resume: bool = False) -> list[Node]:
        alone = ("launch.hostfile=null", "launch.no_ssh=false", "launch.master_addr=")
        several = ("launch.master_addr=127.0.0.1", f"launch.hostfile={folder}/hosts", "launch.no_ssh=true")
        where = (*several, f"launch.master_port={launch.free_port()}") if nodes > 1 else alone
        settings = pretrain.settings(inputs, run, *ENDLESS, *overrides, *where)
        file = run.with_suffix(".yaml")
        file.write_text(config.to_yaml(settings), encoding="utf8")
        command = [sys.executable, "-m", "course_lib.cli", "pretrain", "-c", str(file), *["--resume"] * resume]
        made = []
        for rank in range(nodes):
            words = [*command, *(["--node-rank", str(rank)] if nodes > 1 else [])]
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )  # fmt: skip
            made.append(Node(process, run))
        started.extend((node, []) for node in made)
        return made

    begin.folder = folder  # type: ignore[attr-defined]
    yield begin
    for node, _ in started:
        for process in node.family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        node.process.communicate()


@pytest.fixture(scope="module")
def lost(start: Any) -> dict[str, Any]:
    """One node with two ranks, stopped by Slurm's signal; and two nodes with a rank each, the second of which is killed."""
    folder: Path = start.folder
    (one,) = start(folder / "one", nodes=1)
    first, second = start(folder / "two")
    one.wait_for_step(6)
    one.process.send_signal(signal.SIGUSR1)
    first.wait_for_step(6)
    ranks = first.family()[1:]
    assert len(ranks) == 2
    for process in reversed(second.family()):
        process.kill()
    second.end()
    return {"one": one.end(), "two": first.end(), "ranks": ranks, "folder": folder}


def test_the_losses_of_two_nodes_are_those_of_two_ranks(lost: dict[str, Any]) -> None:
    one, two = losses(lost["folder"] / "one"), losses(lost["folder"] / "two")
    common = one.keys() & two.keys()
    assert {1, 2, 3, 4, 5, 6} <= common
    assert [one[step] for step in sorted(common)] == [two[step] for step in sorted(common)]
    # The dropout of the second rank counts.
    assert len(set(one.values())) == len(one)


def test_slurms_signal_ends_a_run_with_a_checkpoint(lost: dict[str, Any]) -> None:
    code, _, said = lost["one"]
    step = checkpoint.step_of(checkpoint.latest(lost["folder"] / "one"))
    assert code == 138 and step >= 6 and max(losses(lost["folder"] / "one")) == step
    assert said.startswith(
        f"course: stopped by SIGUSR1 at step {step} of 100000; --resume continues from checkpoint-{step};"
    )


def test_a_killed_node_is_named_and_the_other_leaves_no_rank(lost: dict[str, Any]) -> None:
    code, _, said = lost["two"]
    saved = checkpoint.latest(lost["folder"] / "two").name
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(
        "course: nodeB was lost (the machine, its network, or course on it); the others were stopped; at"
    )
    assert f"--resume continues from {saved};" in said
    assert gone(lost["ranks"])


def test_the_run_goes_on_on_both_nodes_or_on_the_one_that_is_left(start: Any, lost: dict[str, Any]) -> None:
    folder: Path = lost["folder"]
    step = checkpoint.step_of(checkpoint.latest(folder / "two"))
    shutil.copytree(folder / "two", folder / "left")
    more = (f"engine.max_steps={step + 2}", "batch.global_size=8")
    nodes = [
        *start(folder / "two", *more, resume=True),
        *start(folder / "left", *more, "launch.ranks=1", nodes=1, resume=True),
    ]
    with ThreadPoolExecutor(3) as waiting:
        ends = list(waiting.map(Node.end, nodes))
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    assert ends[0][1].endswith(f"{step + 2} steps → {folder}/two/model\n") and ends[1][1].endswith(
        f"{launch.FOLLOWED}\n"
    )
    assert f"checkpoint-{step} was saved by 2 ranks and continues on 1, with the same batches" in ends[2][1]
    for name, ranks in (("two", 2), ("left", 1)):
        assert checkpoint.ranks_of(checkpoint.at(folder / name, step + 2)) == ranks
        assert (folder / name / "model" / "model.safetensors").exists()
    # The same batches: only the dropout masks and the order of sums differ.
    assert losses(folder / "left")[step + 1] == pytest.approx(losses(folder / "two")[step + 1], rel=0.02)

"""How the end of a run of several ranks is told: real processes, which are not `course` commands (fake_course.py)."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from course_lib.errors import CourseError
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import checkpoint, starter, watch
from course_lib.training.nodes import HERE, Nodes

from tests.training import fake_course
from tests.waiting import LIMIT, until

FAKE = (sys.executable, "-u", "-m", "tests.training.fake_course")
TWO = Nodes({HERE: 2})
MIXED = Nodes({"nodeA": 2, "nodeB": 1}, "ssh")


class FakeRun:
    """As much of a run as the starter needs."""

    command = "pretrain"
    settings_class = PretrainConfig

    def __init__(self, folder: Path, *overrides: str) -> None:
        values = {"engine": {"output_dir": str(folder)}, "launch": {"device": "cpu"}}
        self.settings = config.build(PretrainConfig, values, overrides)

    def title(self) -> str:
        return "a fake"


@pytest.fixture
def end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a text on all ranks, and returns the line that tells how it ended, or "well"."""
    monkeypatch.setattr(starter, "COURSE", FAKE)

    folder = tmp_path / "run"
    folder.mkdir()

    def run(text: str, nodes: Nodes = TWO, on_message: Any = lambda _: None) -> str:
        monkeypatch.setenv(fake_course.TEXT, text)
        # Nobody has anything more to say.
        if "wait()" in text:
            monkeypatch.setattr(watch, "GRACE", 0.3)
        fake: Any = FakeRun(folder)
        before = {*psutil.Process().children(recursive=True)}
        try:
            starter.start(fake, nodes, 10, False, on_message)
        except CourseError as error:
            return f"{error.exit_code} {error}"
        finally:
            assert not [path for path in folder.glob(".*") if path.name.startswith(".ranks")]
            assert not {*psutil.Process().children(recursive=True)} - before
        return "well"

    return run


def test_all_is_well_and_the_first_rank_is_heard(end: Callable[..., str], tmp_path: Path) -> None:
    said: list[str] = []
    text = "print('from', rank); print('aside', file=sys.stderr); print('no end', end='')"
    assert end(text, on_message=said.append) == "well"
    assert said == ["from 0", "no end"]
    output = (tmp_path / "run" / "output.txt").read_text()
    assert output.count("from 0") == output.count("from 1") == 1 and output.count("aside") == 2


# what the ranks do, and how the line begins that tells it
ENDS = {
    "report('the loss is nan') if rank else miss()": "1 the loss is nan",
    "report('batch.micro_size: 3 is not allowed', 2) if rank == 0 else wait()": "2 batch.micro_size: 3 is not allowed",
    "step(4); fail(MemoryError('no room')) if rank else miss()": "1 out of memory on rank 1 at step 4: the planner expects",
    "kill() if rank else miss()": "1 rank 1 ended without an error message (killed",
    "kill() if rank else wait()": "1 rank 1 ended without an error message (killed",
    "fail(KeyError('x')) if rank else miss()": "1 rank 1 failed: KeyError: 'x'; at step 0 of 10, no checkpoint",
    "time.sleep(rank); miss(waits=False)": "1 rank 0 failed: RuntimeError: [gloo",
    "sys.exit('no route') if rank else wait()": "1 rank 1 ended with code 1 before training began: no route",
    "step(7); save(6); wait() if rank else fail(KeyError('x'))": "1 rank 0 failed: KeyError: 'x'; at step 7 of 10, --resume continues from checkpoint-6",
}  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), ENDS.items(), ids=range(len(ENDS)))
def test_the_first_cause_is_named(end: Callable[..., str], tmp_path: Path, text: str, wanted: str) -> None:
    said = end(text)
    assert said.startswith(wanted)
    reported = wanted.startswith(("1 the loss", "2"))
    assert said.endswith("" if reported else f"all output is in {tmp_path}/run/output.txt")


def test_a_rank_that_waits_for_a_dead_one_is_ended(end: Callable[..., str]) -> None:
    ignores = "import signal; [signal.signal(each, signal.SIG_IGN) for each in (2, 15)]"
    assert end(f"{ignores}; report('broken') if rank else wait()") == "1 broken"


STOPS = {signal.SIGTERM: "143 terminated", signal.SIGINT: "130 interrupted", signal.SIGHUP: "129 hung up",
         signal.SIGUSR1: "138 stopped by SIGUSR1"}  # fmt: skip


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_makes_the_ranks_save_and_stop(
    end: Callable[..., str], tmp_path: Path, number: signal.Signals
) -> None:
    def heard(line: str) -> None:
        if line == "step 3":
            os.kill(os.getpid(), number)
            # GNU timeout sends two.
            if number == signal.SIGTERM:
                os.kill(os.getpid(), number)

    handlers = [signal.getsignal(each) for each in STOPS]
    said = end("train()", on_message=heard)
    (saved,) = checkpoint.whole_checkpoints(tmp_path / "run")
    step = checkpoint.step_of(saved)
    assert step >= 3
    assert said.startswith(
        f"{STOPS[number]} at step {step} of 10; --resume continues from checkpoint-{step}; all output"
    )
    assert [signal.getsignal(each) for each in STOPS] == handlers
    assert said[4:] in (tmp_path / "run" / "output.txt").read_text()


def test_before_the_first_step_there_is_nothing_to_save(end: Callable[..., str]) -> None:
    said = end("print('hello'); wait()", on_message=lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert said.startswith("130 interrupted before the first step; no checkpoint was saved yet")


def test_a_second_interrupt_ends_the_ranks_at_once(end: Callable[..., str]) -> None:
    """The ranks do not stop when they are asked; they say when they are."""

    def heard(line: str) -> None:
        if line in ("step 1", "asked"):
            os.kill(os.getpid(), signal.SIGINT)

    deaf = (
        "step(1)\nwith interruptions.listening() as request:\n"
        "  while not request.cause: time.sleep(0.01)\n  print('asked'); wait()"
    )
    assert end(deaf, on_message=heard).startswith("130 interrupted at step 1 of 10")


def test_patience_has_an_end(end: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 0.5)
    said = end("step(1); wait()", on_message=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert said.startswith("143 terminated at step 1 of 10")


def test_a_reader_that_has_enough_ends_the_run_with_a_checkpoint(end: Callable[..., str], tmp_path: Path) -> None:
    def gone(line: str) -> None:
        if line == "step 3":
            raise BrokenPipeError(32, "Broken pipe")

    said = end("train()", on_message=gone)
    step = checkpoint.step_of(checkpoint.to_export(tmp_path / "run"))
    assert said.startswith(f"141 the reader of the output has ended, so the run stopped at step {step} of 10; --resume")


def test_an_error_of_the_caller_ends_the_ranks(end: Callable[..., str]) -> None:
    def broken(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="step 1"):
        end("train()", on_message=broken)


def test_a_signal_of_somebody_else_to_a_rank_is_told(end: Callable[..., str]) -> None:
    text = "with interruptions.listening():\n  os.kill(os.getpid(), 10)\n  train()"
    assert end(text).startswith("138 stopped by SIGUSR1 at step 1 of 10; --resume continues from checkpoint-1")


@pytest.mark.parametrize("silent", [True, False])
def test_ranks_do_not_outlive_the_starter(tmp_path: Path, silent: bool) -> None:
    script = (
        "import sys; from pathlib import Path; from course_lib.training import starter; from tests.training import test_starter as t;"
        "starter.COURSE = t.FAKE; Path(sys.argv[1]).mkdir(); starter.start(t.FakeRun(Path(sys.argv[1])), t.TWO, 10, False, lambda _: None)"
    )
    text = "print('begun', file=sys.stderr); wait()" if silent else "print('begun', file=sys.stderr); train()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")], env=os.environ | {fake_course.TEXT: text}
    )
    output = tmp_path / "run" / "output.txt"
    until(lambda: output.exists() and output.read_text().count("begun") == 2, process)
    ranks = psutil.Process(process.pid).children(recursive=True)
    assert len(ranks) == 2
    process.kill()
    process.wait()
    assert not psutil.wait_procs(ranks, timeout=LIMIT)[1]


# A node is a process here: `ssh NODE COMMAND` ends with 255 if the shell of the node is killed.
SSH = """\
import subprocess, sys
code = subprocess.run(["sh", "-c", sys.argv[2]], env={"PATH": "/usr/bin:/bin", "NODE": sys.argv[1]}).returncode
sys.exit(255 if code < 0 else code)
"""


@pytest.fixture
def ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ssh.py").write_text(SSH)
    monkeypatch.setattr(starter, "SSH", (sys.executable, str(tmp_path / "ssh.py")))


@pytest.mark.usefixtures("ssh")
def test_ranks_of_other_nodes_are_started_by_ssh(end: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_QUOTED", "two words; 'and' $more")
    said: list[str] = []
    text = "print(*[os.environ[each] for each in ('NODE', 'RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'COURSE_QUOTED')])"
    assert end(text, MIXED, said.append) == "well"
    assert said == ["nodeA 0 0 3 two words; 'and' $more"]


LOST_NODES = {
    "step(1); time.sleep(0.5); os.kill(os.getppid(), 9) if rank == 2 else wait()": "1 nodeB was lost (the machine",
    "step(1); kill() if rank == 2 else wait()": "1 rank 2 on nodeB ended without an error message",
    "report('data.input: not the same content', 1) if rank == 2 else wait()": "1 nodeB: data.input: not the same content",
    "report('no', 2) if rank == 1 else wait()": "2 no",
}  # fmt: skip


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize(("text", "wanted"), LOST_NODES.items(), ids=range(len(LOST_NODES)))
def test_a_node_that_fails_is_named(end: Callable[..., str], text: str, wanted: str) -> None:
    assert end(text, MIXED).startswith(wanted)


def test_a_node_that_cannot_be_reached_is_named(end: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "SSH", ("sh", "-c", "echo 'ssh: connect to host nodeA: refused' >&2; exit 255"))
    assert end("", MIXED).startswith(
        "1 rank 0 on nodeA ended with code 255 before training began: ssh: connect to host"
    )


SLURM = Nodes({"nodeA": 1, "nodeB": 1}, "srun", "127.0.0.1")


@pytest.fixture
def srun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "srun"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.training.fake_srun "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.usefixtures("srun")
def test_srun_starts_the_ranks_of_all_nodes(end: Callable[..., str]) -> None:
    said: list[str] = []
    text = "print(*[os.environ[each] for each in ('NODE', 'RANK', 'LOCAL_RANK', 'WORLD_SIZE')])"
    assert end(text, Nodes({"nodeA": 2, "nodeB": 2}, "srun"), said.append) == "well"
    assert said == ["nodeA 0 0 4"]


BY_SRUN = {
    "step(1); time.sleep(0.5); kill() if rank else wait()": "1 nodeB was lost (the machine",
    "report('data.input: not the same content') if rank else wait()": "1 nodeB: data.input: not the same content",
    "step(1); fail(KeyError('x')) if rank else (time.sleep(1), miss())": "1 rank 1 on nodeB failed: KeyError: 'x'",
}


@pytest.mark.usefixtures("srun")
@pytest.mark.parametrize(("text", "wanted"), BY_SRUN.items(), ids=range(len(BY_SRUN)))
def test_srun_tells_which_node_fails(end: Callable[..., str], text: str, wanted: str) -> None:
    assert end(text, SLURM).startswith(wanted)


def test_an_srun_that_starts_nothing_is_told(end: Callable[..., str], tmp_path: Path, srun: None) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\necho 'srun: error: Unable to create step' >&2; exit 1\n")
    assert end("", SLURM).startswith(
        "1 srun ended with code 1 before training began: srun: error: Unable to create step"
    )


@pytest.mark.usefixtures("srun")
def test_srun_passes_a_request_on(end: Callable[..., str]) -> None:
    said = end("train()", SLURM, lambda line: os.kill(os.getpid(), signal.SIGUSR1) if line == "step 3" else None)
    assert said.startswith("138 stopped by SIGUSR1 at step ") and "--resume continues from" in said

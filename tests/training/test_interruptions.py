"""Training commands that are interrupted: by signals, by a terminal that closes, and by `head`. None leaves a rank behind."""

import fcntl
import os
import pty
import resource
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from course_lib.errors import CourseError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import checkpoint, log
from course_lib.training.loop import train

from tests.gptsan import test_training as gptsan
from tests.prefix import test_training as prefix
from tests.pretrain import test_training as pretrain
from tests.waiting import LIMIT, until

# No run reaches its last step or saves a checkpoint by itself.
ENDLESS = ("engine.max_steps=100000", "engine.save_steps=100000", "engine.eval_freq=0", "batch.global_size=4", "engine.tracking=[]")  # fmt: skip


@dataclass
class Command:
    """A training command that runs in a session of its own, as a terminal starts it."""

    process: "subprocess.Popen[str]"
    run: Path
    terminal: int | None = None
    ranks: list[psutil.Process] = field(default_factory=list)

    def wait_for_step(self, step: int) -> None:
        """Return when the log has a step; remember all processes of the command."""
        logged = self.run / log.FILE
        until(lambda: logged.exists() and [e for e in log.read(self.run) if e["step"] >= step], self.process)
        self.ranks = psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> str:
        """Return what is on standard error once the command has ended."""
        return self.process.communicate(timeout=LIMIT)[1]

    def saved(self) -> int:
        """Return the step of the only checkpoint."""
        (whole,) = checkpoint.whole_checkpoints(self.run)
        return checkpoint.step_of(whole)

    def left(self) -> list[psutil.Process]:
        """Return the processes that outlive the command."""
        return [rank for rank in self.ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Command]]:
    """Starts a training command and leaves none behind.

    One runs at a time: as they have no end, each takes a core from the one that a test waits for.
    """
    commands: list[Command] = []
    modules: dict[str, Any] = {"pretrain": pretrain, "gptsan train": gptsan, "prefix train": prefix}

    def begin(words: str, *overrides: str, closes: bool = False) -> Command:
        folder = tmp_path_factory.mktemp("run")
        (folder / "inputs").mkdir()
        module = modules[words]
        settings = module.settings(module.inputs(folder / "inputs"), folder / "run", *ENDLESS, *overrides)
        (folder / "c.yaml").write_text(config.to_yaml(settings), encoding="utf8")
        command = [sys.executable, "-m", "course_lib.cli", *words.split(), "-c", str(folder / "c.yaml")]
        ends: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        terminal = None
        if closes:
            terminal, inner = pty.openpty()
            ends = dict.fromkeys(ends, inner)

        def prepare() -> None:
            # Under nohup SIGHUP is ignored, and children inherit that.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if closes:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        process = subprocess.Popen(command, text=True, start_new_session=True, preexec_fn=prepare, **ends)
        if closes:
            os.close(inner)
        commands.append(Command(process, folder / "run", terminal))
        return commands[-1]

    yield begin
    for command in commands:
        for process in [command.process, *command.ranks]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.kill()
        command.process.communicate()


@pytest.mark.rehearse
def test_a_terminated_run_saves_a_checkpoint_and_says_how_to_go_on(start: Callable[..., Command]) -> None:
    command = start("pretrain", "launch.ranks=2", "zero.stage=2")
    command.wait_for_step(3)
    assert len(command.ranks) == 2
    command.process.send_signal(signal.SIGTERM)
    command.process.send_signal(signal.SIGTERM)  # as GNU timeout does
    said = command.end()
    step = command.saved()
    assert step >= 3 and log.read(command.run)[-1]["step"] == step
    assert said.count("\n") == 1 and f"terminated at step {step} of 100000; --resume continues" in said
    assert (command.process.returncode, command.left()) == (143, [])
    goes_on(command, step)


def test_an_interrupt_of_a_rank_in_this_process_saves_a_checkpoint(tmp_path: Path) -> None:
    """As Ctrl-C in a notebook's kernel does."""

    def heard(line: str) -> None:
        if "global step 3," in line:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run = Gpt2(pretrain.settings(pretrain.inputs(tmp_path), tmp_path / "run", "launch.ranks=1", *ENDLESS))
    with pytest.raises(
        CourseError, match="^interrupted at step 3 of 100000; --resume continues from checkpoint-3$"
    ) as caught:
        train(run, on_message=heard)
    assert caught.value.exit_code == 130
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.rehearse
def test_a_terminated_rank_saves_a_checkpoint_and_ignores_a_second_signal(start: Callable[..., Command]) -> None:
    command = start("gptsan train", "launch.ranks=1")
    command.wait_for_step(3)
    command.process.send_signal(signal.SIGTERM)
    command.process.send_signal(signal.SIGTERM)
    said = command.end()
    step = command.saved()
    assert said == f"course: terminated at step {step} of 100000; --resume continues from checkpoint-{step}\n"
    assert (command.process.returncode, command.left()) == (143, [])


def goes_on(command: Command, step: int) -> None:
    """An interrupted run of two ranks goes on with one."""
    settings = config.load(
        PretrainConfig,
        command.run.parent / "c.yaml",
        ["launch.ranks=1", "batch.global_size=null", f"engine.max_steps={step + 2}"],
    )
    said: list[str] = []
    before = log.read(command.run)
    resumed = train(Gpt2(settings), resume=True, on_message=said.append)
    # The settings name no global batch, and the run knows its own.
    assert said[0].startswith("batch.global_size: 4") and said[1].startswith(
        f"checkpoint-{step}: number of ranks 2 → 1"
    )
    trained = [entry for entry in resumed.log if entry["kind"] == "train"]
    assert trained[:step] == [entry for entry in before if entry["kind"] == "train"]
    assert [entry["step"] for entry in trained[step:]] == [step + 1, step + 2]
    assert checkpoint.ranks_of(checkpoint.to_export(command.run)) == 1


class Malicious:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made",)


@pytest.mark.rehearse
def test_a_checkpoint_that_would_run_code_is_refused_without_advice_to_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = ("launch.ranks=1", "engine.max_steps=4", "engine.tracking=[]")
    run = tmp_path / "run"
    train(Gpt2(pretrain.settings(pretrain.inputs(tmp_path), run, *sets)))
    (states,) = checkpoint.to_export(run).glob("rng-*.pt")
    torch.save(torch.load(states, weights_only=False) | {"python": Malicious()}, states)
    checkpoint.mark_complete(states.parent)
    longer = pretrain.settings(tmp_path, run, *sets, "engine.max_steps=5")
    with pytest.raises(CourseError, match=r"checkpoint-4.* posix\.mkdir") as caught:
        train(Gpt2(longer), resume=True)
    assert "weights_only" not in str(caught.value)


@pytest.mark.rehearse
def test_a_reader_that_has_enough_ends_the_run_with_a_checkpoint(start: Callable[..., Command]) -> None:
    command = start("prefix train", "launch.ranks=1", "batch.local_size=null", "zero.stage=2")
    assert command.process.stdout
    while "step 3" not in command.process.stdout.readline():
        assert command.process.poll() is None
    command.wait_for_step(3)
    command.process.stdout.close()
    command.process.stdout = None
    said = command.end()
    step = command.saved()
    assert f"the reader of the output has ended, so the run stopped at step {step}" in said
    assert (said.count("\n"), command.process.returncode, command.left()) == (1, 141, [])


@pytest.mark.rehearse
def test_a_closed_terminal_ends_the_run_with_a_checkpoint(start: Callable[..., Command]) -> None:
    command = start("gptsan train", "launch.ranks=2", closes=True)
    assert command.terminal
    text = b""
    while b"step 3" not in text:
        text += os.read(command.terminal, 1000)
    command.wait_for_step(3)
    os.close(command.terminal)
    assert command.process.wait(LIMIT) == 129
    step = command.saved()
    # Nobody reads the terminal, so the message is in the file.
    assert f"hung up at step {step} of 100000; --resume continues" in (command.run / "output.txt").read_text()
    assert command.left() == []


@pytest.mark.rehearse
def test_a_killed_command_leaves_no_ranks(start: Callable[..., Command]) -> None:
    command = start("pretrain", "launch.ranks=2", "engine.save_steps=2")
    command.wait_for_step(5)
    command.process.kill()
    command.end()
    until(lambda: not command.left())
    assert checkpoint.step_of(checkpoint.to_export(command.run)) >= 4


@pytest.mark.rehearse
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_disk_ends_the_run_in_one_line(tmp_path: Path, ranks: int) -> None:
    """RLIMIT_FSIZE stands for a full disk: a write over the limit fails."""
    chosen = pretrain.settings(
        pretrain.inputs(tmp_path), tmp_path / "run", *ENDLESS, f"launch.ranks={ranks}", "engine.save_steps=3",
        # The order of the documents of 100,000 steps would be the first file over the limit.
        "engine.max_steps=100",
    )  # fmt: skip
    (tmp_path / "c.yaml").write_text(config.to_yaml(chosen), encoding="utf8")
    command = [sys.executable, "-m", "course_lib.cli", "pretrain", "-c", str(tmp_path / "c.yaml")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert (
        done.stderr.startswith(f"course: {tmp_path}/run/checkpoints/checkpoint-3/") and "File too large" in done.stderr
    )


@pytest.mark.rehearse
@pytest.mark.parametrize("ranks", [1, 2])
def test_two_commands_do_not_train_in_one_folder(start: Callable[..., Command], ranks: int) -> None:
    command = start("pretrain", f"launch.ranks={ranks}")
    command.wait_for_step(1)
    output = command.run / "output.txt"
    words = [sys.executable, "-m", "course_lib.cli", "pretrain", "-c", str(command.run.parent / "c.yaml"), "--resume"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 1
    assert done.stderr == f"course: {command.run}: another process is training here; choose another engine.output_dir\n"
    assert "another process" not in (output.read_text() if output.exists() else "")
    assert command.process.poll() is None

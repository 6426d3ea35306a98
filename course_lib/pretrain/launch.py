"""Starts a run with DeepSpeed's launcher, follows it, and says in one line how it ended. The ranks themselves are worker.py.

A run is a folder: config.yaml, deepspeed.json, data.json, tokenizer/, log.jsonl, output.txt (all that the ranks printed), checkpoints/,
tensorboard/ and, when it is through, model/.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock, Timeout

from course_lib import config
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write
from course_lib.parallel import default_workers
from course_lib.pretrain import checkpoint, data, events, log, worker
from course_lib.pretrain.config import PretrainConfig, ResolvedBatch
from course_lib.pretrain.rates import warmup_steps
from course_lib.pretrain.zero import deepspeed_json
from course_lib.progress import progress

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """What a run came to."""

    folder: Path
    steps: int
    log: list[dict[str, Any]]


def pretrain(settings: PretrainConfig, resume: bool = False, say: Say = print) -> Run:
    """Trains the model of the settings under DeepSpeed; returns when all steps are done.

    With `resume` it goes on from the last whole checkpoint of engine.output_dir. `say` is given each line of the log. Raises UsageError
    for settings that do not go together, CourseError for everything that ends a run before its last step.
    """
    settings = _absolute(settings)
    ranks = count_ranks(settings)
    batch = settings.batch.resolve(ranks)
    data.check_vocabulary(settings)
    splits = data.open_splits(settings.data, settings.model.vocab_size)
    steps = data.training_steps(settings, batch, splits.train_tokens)
    warmup_steps(settings.optimizer.lr, steps)
    folder = settings.engine.output_dir
    with _sole_user(folder):
        _prepare(settings, batch, resume)
        if not (resume and _is_done(folder, steps)):
            _Follower(settings, ranks, steps, say).follow(_command(settings, ranks, resume))
    return Run(folder, steps, log.read(folder))


def count_ranks(settings: PretrainConfig) -> int:
    """Data-parallel ranks over all nodes."""
    launch = settings.launch
    if launch.hostfile:
        return sum(_slots(launch.hostfile).values())
    if launch.ranks:
        return launch.ranks
    import torch

    return max(torch.cuda.device_count(), 1)


def _slots(hostfile: Path) -> dict[str, int]:
    """Ranks per node of a DeepSpeed hostfile. Raises UsageError naming a line that is none of `name slots=N`."""
    found = {}
    try:
        lines = hostfile.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"launch.hostfile: {hostfile}: not readable: {error}") from None
    for number, text in enumerate(lines, 1):
        words = text.split("#")[0].split()
        if not words:
            continue
        name, _, count = words[-1].partition("=")
        if len(words) != 2 or name != "slots" or not count.isdigit() or not int(count):
            raise UsageError(
                f"launch.hostfile: {hostfile}, line {number}: {text!r} is not allowed: expected `name slots=8`"
            )
        found[words[0]] = int(count)
    if not found:
        raise UsageError(f"launch.hostfile: {hostfile}: names no node; expected lines `name slots=8`")
    return found


def _absolute(settings: PretrainConfig) -> PretrainConfig:
    """The same with absolute paths: ranks on other nodes start in another folder."""
    if not settings.data.input or settings.data.tokenizer is None:
        raise UsageError(
            "data.input, data.tokenizer: not set; give prefixes from `course tokenize` and the tokenizer they were made with"
        )
    return replace(
        settings,
        data=replace(
            settings.data,
            input=tuple(path.absolute() for path in settings.data.input),
            tokenizer=settings.data.tokenizer.absolute(),
            cache=settings.data.cache and settings.data.cache.absolute(),
        ),
        engine=replace(settings.engine, output_dir=settings.engine.output_dir.absolute()),
        launch=replace(settings.launch, hostfile=settings.launch.hostfile and settings.launch.hostfile.absolute()),
    )


@contextmanager
def _sole_user(folder: Path) -> Iterator[None]:
    """Holds the run's folder; raises CourseError if another process trains in it."""
    if folder.is_file():
        raise UsageError(f"engine.output_dir: {folder} is a file; allowed: a folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise CourseError(f"{folder}: another process is training here; choose another engine.output_dir") from None


def _prepare(settings: PretrainConfig, batch: ResolvedBatch, resume: bool) -> None:
    """Writes the run's settings, or checks that they fit the run that is there. Raises UsageError."""
    folder = settings.engine.output_dir
    before = folder / worker.CONFIG
    if before.exists() and not resume:
        raise UsageError(
            f"engine.output_dir: {folder} holds a run; --resume goes on with it, another engine.output_dir begins anew"
        )
    if not before.exists() and any(path.name != ".lock" for path in folder.iterdir()):
        raise UsageError(f"engine.output_dir: {folder} holds other files; allowed: a new folder, or a run to resume")
    if before.exists():
        _require_same(config.load(PretrainConfig, before), settings)
    assert settings.data.tokenizer
    for name, content in {
        "deepspeed.json": deepspeed_json(settings, batch),
        "data.json": {"inputs": data.facts(settings.data.input)},
    }.items():
        with atomic_write(folder / name) as file:
            file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    if not (folder / "tokenizer").exists():
        shutil.copytree(settings.data.tokenizer, folder / "tokenizer", ignore=shutil.ignore_patterns("manifest.json"))
    with atomic_write(before) as file:  # last: with it the folder is a run
        file.write(config.to_yaml(settings).encode())


def _require_same(before: PretrainConfig, now: PretrainConfig) -> None:
    """Raises UsageError if a run would go on as another one: with another model, other batches, or other samples."""
    old, new = config.to_dict(before), config.to_dict(now)
    fixed = [
        ("model", key) for key in new["model"] if key not in ("recompute", "attention")
    ] + [("data", "split"), ("data", "seq_length"), ("batch", "global_size"), ("batch", "local_size"), ("batch", "micro_size"),
         ("precision", "dtype"), ("zero", "stage"), ("engine", "seed"), ("launch", "ranks")]  # fmt: skip
    for part, key in fixed:
        if old[part][key] != new[part][key]:
            raise UsageError(
                f"{part}.{key}: {new[part][key]} is not allowed: the run in {before.engine.output_dir} has {old[part][key]}; "
                "resume it as it was, or begin anew in another engine.output_dir"
            )


def _is_done(folder: Path, steps: int) -> bool:
    return any(checkpoint.step_of(path) >= steps for path in checkpoint.whole_checkpoints(folder))


def _command(settings: PretrainConfig, ranks: int, resume: bool) -> list[str]:
    """The launcher's command line."""
    launch = settings.launch
    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--no_local_rank"]
    if launch.hostfile:
        command += ["--hostfile", str(launch.hostfile)]
    else:
        command += [
            "--hostfile",
            os.devnull,
            "--num_gpus",
            str(ranks),
        ]  # else it reads /job/hostfile where there is one
    if launch.master_addr:
        command += ["--master_addr", launch.master_addr]
    command += ["--master_port", str(launch.master_port or _free_port())]
    command += [worker.__file__, str(settings.engine.output_dir)]
    return [*command, "--resume"] if resume else command


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _environment(settings: PretrainConfig, ranks: int) -> dict[str, str]:
    """What the ranks see: CPU ranks where there is no GPU, and no more threads than cores."""
    import torch

    environment = dict(os.environ)
    if not torch.cuda.is_available():
        environment["DS_ACCELERATOR"] = "cpu"
    here = 1 if settings.launch.hostfile else ranks
    threads = settings.launch.threads or max(1, default_workers() // here)
    environment["OMP_NUM_THREADS"] = str(threads)
    environment["TOKENIZERS_PARALLELISM"] = "false"
    beside = str(
        Path(sys.executable).parent
    )  # this environment's ninja first: another one would compile DeepSpeed's parts anew
    environment["PATH"] = os.pathsep.join([beside, environment.get("PATH", os.defpath)])
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), environment.get("PYTHONPATH")])
    )
    return environment


class _Follower:
    """Reads what the ranks tell, shows it, and knows how the run ended."""

    def __init__(self, settings: PretrainConfig, ranks: int, steps: int, say: Say) -> None:
        self.settings, self.ranks, self.steps, self.say = settings, ranks, steps, say
        self.folder = settings.engine.output_dir
        self.ended: dict[int, dict[str, Any]] = {}  # rank → its last event
        self.reached, self.bar = 0, progress(steps, "step", f"training {self.folder.name}")

    def follow(self, command: list[str]) -> None:
        """Runs the launcher to its end. Raises CourseError unless every rank finished."""
        with open(self.folder / "output.txt", "ab") as output, self.bar:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=_environment(self.settings, self.ranks), cwd=self.folder, start_new_session=True,
            )  # fmt: skip
            assert process.stdout
            try:
                for raw in process.stdout:
                    event = events.parse(raw.decode(errors="replace"))
                    if event is None:
                        output.write(raw)
                        output.flush()
                    else:
                        self._take(event)
                process.wait()
            except BaseException:  # Ctrl-C, or nobody reads what we say: the ranks end with us
                _end(process)
                raise
        self._judge(process.returncode)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind in ("finished", "error", "terminated"):
            self.ended.setdefault(event["rank"], event)
        elif kind == "training":
            self.bar.reset(total=event["steps"])
            self._move(event["step"])
        elif kind == "step":
            self._move(event["step"])
        elif kind == "log":
            entry = event["entry"]
            if entry["kind"] == "train":
                self.bar.set_postfix_str(
                    f"loss {entry['loss']:.3f}, {entry['tokens_per_second']:.0f} tokens/s", refresh=False
                )
            self.bar.clear()
            self.say(log.line(entry))

    def _move(self, step: int) -> None:
        self.bar.update(step - self.reached)
        self.reached = step

    def _judge(self, code: int) -> None:
        """Raises CourseError saying what ended the run: the first cause, not what followed from it."""
        errors = [event for event in self.ended.values() if event["kind"] == "error"]
        if len(self.ended) == self.ranks and all(event["kind"] == "finished" for event in self.ended.values()):
            return
        for why in ("user", "memory"):
            for event in errors:
                if event["why"] == why:
                    raise CourseError(event["message"] if why == "user" else self._memory_line(event))
        silent = sorted(set(range(self.ranks)) - self.ended.keys())
        crashed = [event for event in errors if event["why"] == "crash"]
        if crashed:
            what = f"rank {crashed[0]['rank']} failed: {crashed[0]['message']}"
        elif silent and self.ended:
            what = f"rank {', '.join(map(str, silent))} died without a word (killed, or the machine ran out of memory); the others were stopped"
        elif errors:
            what = f"rank {errors[0]['rank']} failed: {errors[0]['message']}"
        else:
            what = f"the launcher ended with code {code} before the ranks trained: {self._last_output()}"
        raise CourseError(f"{what}; at step {self.reached} of {self.steps}, {self._how_on()}")

    def _how_on(self) -> str:
        whole = checkpoint.whole_checkpoints(self.folder)
        back = f"--resume goes on from {whole[0].name}" if whole else "no checkpoint was saved yet"
        return f"{back}; all output is in {self.folder / 'output.txt'}"

    def _last_output(self) -> str:
        lines = (self.folder / "output.txt").read_text(encoding="utf8", errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it said nothing")

    def _memory_line(self, event: dict[str, Any]) -> str:
        from course_lib.pretrain import planner

        plan = planner.plan(self.settings, self.ranks)
        knobs = "; ".join(
            f"{change} → {total / 1e9:.1f} GB" for change, total in planner.smaller(self.settings, self.ranks)
        )
        return (
            f"out of memory on rank {event['rank']} at step {self.reached}: the planner expects {plan.total / 1e9:.1f} GB a rank; "
            f"what would help: {knobs or 'a smaller model'}; {self._how_on()}"
        )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the launcher and its ranks, first politely."""
    for sign, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, sign)
            process.wait(patience)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue

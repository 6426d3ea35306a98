"""Training on two nodes on this machine, started in two ways: `python -m tests.bench.several_nodes [slurm|ssh]`.

The losses of two nodes against those of one node with two ranks, bit for bit; a node that is killed in the middle; the
run that goes on with both nodes, and with one; a command that is terminated. By Slurm also the script of --print-sbatch:
a run that is stopped before its time limit comes back from the queue. Prints one line per check and ends with code 1 if
one fails. Needs root and `apt-get install slurm-wlm munge openssh-server`.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import psutil
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import checkpoint, log

from tests.bench import slurm_cluster, ssh_nodes
from tests.pretrain import test_training as pretrain
from tests.waiting import LIMIT, until

COURSE = (sys.executable, "-m", "course_lib.cli", "pretrain")
STEPS = 12
FIXED = (
    "engine.save_steps=4", "engine.keep_checkpoints=null", "engine.eval_freq=0", "engine.test_iters=0", "engine.tracking=[]",
    "model.hidden_dropout_prob=0.1",
)  # fmt: skip
ONE = ("launch.ranks=1",)
Start = Callable[..., "subprocess.Popen[str]"]


def losses(run: Path) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in log.read(run) if entry["kind"] == "train"}


class Place:
    """Data, settings files and runs in a temporary folder, and the results of the checks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.failed = folder, 0
        (folder / "inputs").mkdir()
        self.inputs = pretrain.inputs(folder / "inputs")

    def file(self, run: str, *overrides: str) -> list[str]:
        """Return the command for a run, after writing its settings."""
        settings: PretrainConfig = pretrain.settings(self.inputs, self.folder / run, *FIXED, *overrides)
        path = self.folder / f"{run}.yaml"
        path.write_text(config.to_yaml(settings), encoding="utf8")
        return [*COURSE, "-c", str(path)]

    def check(self, what: str, right: bool, detail: object = "") -> None:
        """Print a result, with what was seen if it is wrong."""
        self.failed += not right
        print(f"{'ok ' if right else 'NOT'} {what}{'' if right else f': {detail}'}", flush=True)

    def wait(self, process: "subprocess.Popen[str]") -> tuple[int, str]:
        """Return the exit code and the errors of a command."""
        _, said = process.communicate(timeout=LIMIT)
        return process.returncode, said

    def step(self, run: str, step: int, process: "subprocess.Popen[str] | None" = None) -> None:
        """Wait until the log of a run has a step."""
        until(
            lambda: (self.folder / run / log.FILE).exists() and max(losses(self.folder / run), default=0) >= step,
            process,
        )


@contextlib.contextmanager
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="nodes-"))
    try:
        yield Place(folder)
    finally:
        shutil.rmtree(folder)


def same_losses(here: Place, start: Start, *overrides: str) -> None:
    """Compare two nodes with one node of two ranks, over a whole run."""
    began = perf_counter()
    whole = here.wait(start(here.file("two", f"engine.max_steps={STEPS}", *overrides)))
    here.check("two nodes train to the last step", whole[0] == 0, whole)
    one = subprocess.run(
        here.file("one", f"engine.max_steps={STEPS}"), capture_output=True, text=True, timeout=LIMIT, check=False
    )  # fmt: skip
    here.check("one node trains to the last step", one.returncode == 0, one.stderr)
    alone, together = losses(here.folder / "one"), losses(here.folder / "two")
    same = len(alone) == STEPS and alone == together
    here.check(f"{STEPS} losses are the same bit for bit (last: {alone.get(STEPS)!r})", same, (alone, together))
    exported = (here.folder / "two" / "model" / "model.safetensors").read_bytes()
    same = exported == (here.folder / "one" / "model" / "model.safetensors").read_bytes()
    here.check("the exported weights are the same bytes", same)
    print(f"    {perf_counter() - began:.0f} s", flush=True)


def killed(here: Place, start: Start, kill: Callable[[], None], name: str, *overrides: str) -> None:
    """Kill the second node in the middle of a run, and look at what the first one says."""
    endless = here.file("lost", "engine.max_steps=100000", *overrides)
    process = start(endless)
    here.step("lost", 6, process)
    began = perf_counter()
    kill()
    code, said = here.wait(process)
    line = next((each for each in said.splitlines() if each.startswith("course: ")), "")
    named = f"course: {name} was lost" in line and "--resume continues from checkpoint-" in line
    here.check("a killed node is named, in one line", code != 0 and named, said)
    print(f"    after {perf_counter() - began:.1f} s: {line}", flush=True)


def goes_on(here: Place, start: Start, *overrides: str) -> None:
    """Resume the run that has lost a node, with both nodes and with one."""
    shutil.copytree(here.folder / "lost", here.folder / "left")
    end = checkpoint.step_of(checkpoint.to_export(here.folder / "lost")) + 2
    both = here.wait(start([*here.file("lost", f"engine.max_steps={end}", *overrides), "--resume"]))
    here.check("it goes on with both nodes", both[0] == 0 and max(losses(here.folder / "lost")) >= end, both)
    alone = subprocess.run(
        [*here.file("left", f"engine.max_steps={end}", *ONE), "--resume"], capture_output=True, text=True, timeout=LIMIT, check=False
    )  # fmt: skip
    right = alone.returncode == 0 and "number of ranks 2 → 1" in alone.stdout
    here.check("it goes on with the one that is left", right, (alone.stdout[-500:], alone.stderr))


def terminated(here: Place, start: Start, *overrides: str) -> None:
    """Resume the run, and terminate the command."""
    process = start([*here.file("lost", "engine.max_steps=100000", *overrides), "--resume"])
    before = max(losses(here.folder / "lost"))
    here.step("lost", before + 3, process)
    # `salloc` runs the command as its child.
    children = psutil.Process(process.pid).children()
    next((child for child in children if "course_lib.cli" in child.cmdline()), process).terminate()
    code, said = here.wait(process)
    saved = checkpoint.step_of(checkpoint.to_export(here.folder / "lost"))
    line = f"course: terminated at step {saved} of 100000; --resume continues from checkpoint-{saved};"
    here.check("a terminated run saves a checkpoint", code == 143 and line in said, (code, said))


def by_slurm() -> int:
    """Check training under Slurm, and return the number of failures."""
    with slurm_cluster.cluster() as slurm, place() as here:
        print(f"Slurm: {slurm.run('sinfo', '--version').stdout.strip()}", flush=True)

        def start(command: list[str]) -> "subprocess.Popen[str]":
            return slurm.popen("salloc", "--quiet", "--nodes=2", "--ntasks-per-node=1", *command)

        same_losses(here, start, "launch.ranks=1")
        killed(here, start, lambda: slurm.kill("node2"), "node2", "launch.ranks=1")
        left = [process.cmdline() for process in slurm.processes("node2")]
        here.check("no process of the killed node is left", not left, left)
        slurm.start("node2")
        goes_on(here, start, "launch.ranks=1")
        terminated(here, start, "launch.ranks=1")
        requeued(here, slurm)
        return here.failed


def requeued(here: Place, slurm: slurm_cluster.Cluster) -> None:
    """Run the script of --print-sbatch; Slurm signals it, as before its time limit, and it comes back from the queue."""
    command = here.file("batch", "engine.max_steps=100000", "launch.ranks=1", "launch.slurm.nodes=2")
    printed = subprocess.run([*command, "--set", "launch.slurm.cpus_per_rank=1", "--print-sbatch"], capture_output=True, text=True, check=True, cwd=here.folder)  # fmt: skip
    (here.folder / "job.sh").write_text(printed.stdout, encoding="utf8")
    said = slurm.run("sbatch", "--test-only", str(here.folder / "job.sh")).stderr.strip()
    here.check("sbatch --test-only accepts the script", "to start at" in said, said)
    job = slurm.run("sbatch", "--parsable", str(here.folder / "job.sh")).stdout.strip()
    here.step("batch", 6)
    # What Slurm does 300 s before the time limit; its time limits are minutes.
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    written = here.folder / f"pretrain-batch-{job}.log"
    until(lambda: "--resume continues from checkpoint-" in written.read_text(encoding="utf8"))
    saved = checkpoint.step_of(checkpoint.to_export(here.folder / "batch"))
    line = next(each for each in written.read_text(encoding="utf8").splitlines() if each.startswith("course: "))
    stopped = line.startswith("course: stopped by SIGUSR1 at step ") and f"continues from checkpoint-{saved};" in line
    here.check("Slurm's signal saves a checkpoint and ends the run", stopped, line)
    # A requeued job is held for two minutes; `release` makes it eligible at once.
    until(lambda: slurm.state(job) == "PENDING")
    slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
    here.step("batch", saved + 2)
    here.check("the job comes back from the queue and resumes the run", slurm.state(job) == "RUNNING", slurm.state(job))
    slurm.run("scancel", job)
    until(lambda: slurm.state(job) == "CANCELLED")


def by_ssh() -> int:
    """Check training by ssh, and return the number of failures."""
    with ssh_nodes.nodes("nodeA", "nodeB") as ssh, place() as here:
        hosts = here.folder / "hosts"
        hosts.write_text("nodeA slots=1\nnodeB slots=1\n", encoding="utf8")
        nodes = (f"launch.hostfile={hosts}", "launch.master_addr=127.0.0.1")

        def start(command: list[str]) -> "subprocess.Popen[str]":
            return subprocess.Popen(
                command, env=ssh.environment, text=True, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip

        same_losses(here, start, *nodes)
        killed(here, start, lambda: ssh.kill(1), "nodeB", *nodes)
        until(lambda: not ssh.sessions())
        here.check("no ssh session and no rank is left", not ssh.sessions())
        goes_on(here, start, *nodes)
        terminated(here, start, *nodes)
        until(lambda: not ssh.sessions())
        return here.failed


WAYS = {"slurm": by_slurm, "ssh": by_ssh}

if __name__ == "__main__":
    failures = sum(WAYS[name]() for name in sys.argv[1:] or WAYS)
    sys.exit(bool(failures))

"""A real Slurm with several nodes on this machine, from Debian's packages: `apt-get install slurm-wlm munge`.

All nodes are this machine, on loopback, so each of them has a slurmd of its own. The cluster has its own munged, key,
configuration and ports, uses no system service, and leaves no process and no file behind.

    with cluster() as slurm:
        slurm.run("srun", "--nodes=2", "hostname")

`python -m tests.bench.slurm_cluster COMMAND …` runs a command inside a cluster; without one, it opens a shell.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.waiting import LIMIT, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
# The daemons are in /usr/sbin, which is not in everybody's PATH.
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
CONFIGURATION = """\
ClusterName=course
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPort={port}
SlurmdTimeout={timeout}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerParameters=sched_min_interval=1,batch_sched_delay=0
KillWait=30
MinJobAge=3600
"""
NODE = "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory}\n"
PARTITION = "PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP\n"


def missing() -> str:
    """Return why no Slurm can be started on this machine, as a reason to skip a test, or ""."""
    return lacking(PROGRAMS, "slurm-wlm munge")


def lacking(programs: Sequence[str], packages: str) -> str:
    """Return why daemons cannot be started on this machine, or ""."""
    if sys.platform != "linux" or os.geteuid():
        return "its daemons need Linux and root"
    absent = [name for name in programs if not shutil.which(name, path=PATH)]
    return f"{', '.join(absent)} not found: apt-get install {packages}" if absent else ""


@dataclass
class Cluster:
    """A running cluster. `environment` makes Slurm's commands use it."""

    folder: Path
    names: tuple[str, ...]
    environment: dict[str, str]
    daemons: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def run(self, *command: str, check: bool = True, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command with this cluster's Slurm. Its output is captured."""
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, text=True, capture_output=True, timeout=LIMIT, check=False
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def popen(self, *command: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
        """Start a command with this cluster's Slurm, in a session of its own."""
        return subprocess.Popen(
            command, env=self.environment, cwd=cwd, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def state(self, job: str | int) -> str:
        """Return the state of a job, such as PENDING, RUNNING, COMPLETED or NODE_FAIL."""
        shown = self.run("scontrol", "show", "job", "-o", str(job)).stdout
        return next((word.partition("=")[2] for word in shown.split() if word.startswith("JobState=")), "")

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """Return the processes of the cluster, or those of one node: its slurmd, the steps and their tasks."""
        started = []
        for process in psutil.process_iter():
            # The process may have ended.
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                if environment.get("SLURM_CONF") != self.environment["SLURM_CONF"] or process.pid == os.getpid():
                    continue
                if node is None or node in (environment.get("SLURMD_NODENAME"), environment.get("COURSE_NODE")):
                    started.append(process)
        return started

    def kill(self, node: str) -> None:
        """Kill all processes of a node at once, as if the machine had lost its power."""
        # The slurmd first: it would report the end of its tasks.
        for process in sorted(self.processes(node), key=lambda each: "COURSE_NODE" not in each.environ()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.daemons[node].wait()

    def start(self, node: str) -> None:
        """Start the slurmd of a node, and return when Slurm can use the node."""
        self._start(node, "slurmd", "-D", "-N", node)
        if node in self.run("sinfo", "-h", "-N", "-t", "down", "-o", "%N").stdout.split():
            self.run("scontrol", "update", f"nodename={node}", "state=resume")
        until(
            lambda: node in self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").stdout.split(), self.daemons[node]
        )

    def _start(self, name: str, *command: str) -> None:
        program = shutil.which(command[0], path=PATH)
        assert program
        with open(self.folder / f"{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(
                [program, *command[1:]], env=self.environment | {"COURSE_NODE": name},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _stop(self) -> None:
        """End all jobs and all processes."""
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired, OSError):
            subprocess.run(
                ["scancel", "--full", "--signal=KILL", "--state=RUNNING"], env=self.environment, capture_output=True,
                timeout=20, check=False,
            )  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGKILL):
            started = self.processes()
            for process in started:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            psutil.wait_procs(started, timeout=10)
        for daemon in self.daemons.values():
            daemon.wait()


@contextlib.contextmanager
def cluster(nodes: int = 2, cpus: int = 1, memory: int = 4000, node_timeout: int = 60) -> Iterator[Cluster]:
    """Run a Slurm cluster for the duration of the block.

    Args:
        nodes: number of nodes, called node1, node2, ….
        cpus: CPUs per node. Slurm only counts them; it binds no task to a core.
        memory: memory per node [MB], also only counted.
        node_timeout: time after which Slurm gives up a node that does not answer [s].

    Raises:
        RuntimeError: if Slurm cannot be started here.
    """
    if reason := missing():
        raise RuntimeError(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    # munged requires that every user can reach its socket.
    folder.chmod(0o755)
    names = tuple(f"node{number}" for number in range(1, nodes + 1))
    first, *others = _free_ports(nodes + 1)
    text = CONFIGURATION.format(folder=folder, port=first, timeout=node_timeout)
    for name, port in zip(names, others, strict=True):
        text += NODE.format(name=name, port=port, cpus=cpus, memory=memory)
    (folder / "slurm.conf").write_text(text + PARTITION.format(names=",".join(names)), encoding="utf8")
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    running = Cluster(folder, names, inherited | {"SLURM_CONF": str(folder / "slurm.conf")})
    try:
        try:
            _start_all(running)
        except AssertionError as error:
            logs = "".join(f"{path.name}: {path.read_text(errors='replace')[-1000:]}" for path in folder.glob("*.log"))
            raise RuntimeError(f"Slurm did not start: {error}; {logs}") from error
        yield running
    finally:
        running._stop()
        shutil.rmtree(folder, ignore_errors=True)


def _start_all(running: Cluster) -> None:
    """Start munged, slurmctld and the slurmd of each node, and return when Slurm can use all nodes."""
    paths = {name: f"{running.folder}/munge.{name}" for name in ("key", "pid", "log", "seed", "socket")}
    running._start(
        "munged", "munged", "--foreground", "--num-threads=2", f"--key-file={paths['key']}",
        f"--pid-file={paths['pid']}", f"--log-file={paths['log']}", f"--seed-file={paths['seed']}",
        f"--socket={paths['socket']}",
    )  # fmt: skip
    until(lambda: Path(paths["socket"]).exists(), running.daemons["munged"])
    running._start("slurmctld", "slurmctld", "-D")
    until(lambda: running.run("scontrol", "ping", check=False).returncode == 0, running.daemons["slurmctld"])
    for name in running.names:
        running.start(name)


def _free_ports(number: int) -> list[int]:
    """Return different TCP ports that are free."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(number):
            free = stack.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(int(free.getsockname()[1]))
        return ports


if __name__ == "__main__":
    with cluster() as started:
        sys.exit(subprocess.call(sys.argv[1:] or ["bash"], env=started.environment))

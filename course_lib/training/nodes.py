"""The nodes of a run: their names, their ranks, and how `course` was started on them.

Either one `course` starts the ranks of all nodes (this machine only, or by ssh with launch.hostfile), or each node runs
the same `course` command (launch.no_ssh with --node-rank, or `srun`), which starts only the ranks of its node.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import UsageError
from course_lib.training.settings import RunConfig

HERE = "localhost"
# the port of DeepSpeed and PyTorch (TORCH_DISTRIBUTED_DEFAULT_PORT)
PORT = 29500
# a line of a hostfile
HOST = re.compile(r"(\S+)\s+slots=(0*[1-9]\d*)")


@dataclass(frozen=True)
class Nodes:
    """The nodes of a run, in the order of their ranks."""

    # name → number of ranks
    slots: dict[str, int]
    # number of this node, if each node runs `course`; None if this process starts the ranks of all nodes
    rank: int | None = None
    # host name or IP address of the first node, and the port at which its `course` waits for the others
    address: tuple[str, int] = ("127.0.0.1", 0)

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return sum(self.slots.values())

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return list(self.slots)

    @property
    def by_ssh(self) -> bool:
        """Whether DeepSpeed starts ranks on other machines by ssh. It does not for a single node."""
        return self.rank is None and len(self.slots) > 1

    @property
    def name(self) -> str:
        """The name of this node."""
        return self.names[self.rank or 0]

    def of(self, rank: int) -> str:
        """Return the name of the node that has a rank."""
        return [name for name, ranks in self.slots.items() for _ in range(ranks)][rank]


def find(settings: RunConfig, environment: Mapping[str, str] = os.environ) -> Nodes:
    """Return the nodes of a run. Raises UsageError if the settings and this machine do not allow them."""
    launch = settings.launch
    # Only `srun` sets the variables SLURM_STEP_*.
    under_slurm = int(environment.get("SLURM_STEP_NUM_NODES", "1")) > 1
    if under_slurm or launch.no_ssh:
        # Before torch is imported: it would print lines for each attempt to reach the first node (link.py).
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    if launch.hostfile:
        slots = read_hostfile(launch.hostfile)
        if under_slurm:
            raise UsageError("launch.hostfile: not allowed under srun, which names and starts the nodes; unset it")
        if not launch.no_ssh:
            return Nodes(slots)
        allowed = f"0 … {len(slots) - 1}, the number of this node's line in {launch.hostfile}"
        if launch.node_rank is None:
            raise UsageError(f"launch.node_rank: not set; pass --node-rank with one of {allowed}")
        if launch.node_rank >= len(slots):
            raise UsageError(f"launch.node_rank: {launch.node_rank} is not allowed: allowed are {allowed}")
        return Nodes(slots, launch.node_rank, (launch.master_addr, launch.master_port or PORT))
    wanted, present = launch.ranks, gpus(settings)
    if wanted and present and wanted > present:
        raise UsageError(
            f"launch.ranks: {wanted} is not allowed; GPUs on this machine: {present}; CPU ranks: launch.device=cpu"
        )
    ranks = wanted or max(present, 1)
    return _of_slurm(settings, ranks, environment) if under_slurm else Nodes({HERE: ranks})


def gpus(settings: RunConfig) -> int:
    """Return the number of GPUs on this machine that a run may use."""
    if settings.launch.device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count()


def read_hostfile(path: Path) -> dict[str, int]:
    """Return the number of ranks per node from a DeepSpeed hostfile, whose lines are `name slots=N`."""
    slots: dict[str, int] = {}
    try:
        lines = path.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"launch.hostfile: {path}: not readable: {error}") from None
    for number, text in enumerate(lines, 1):
        if content := text.split("#")[0].strip():
            line = HOST.fullmatch(content)
            if not line or line[1] in slots:
                raise UsageError(
                    f"launch.hostfile: {path}, line {number}: {text!r} is not allowed: expected `name slots=8`, once"
                )
            slots[line[1]] = int(line[2])
    if not slots:
        raise UsageError(f"launch.hostfile: {path}: names no nodes; expected lines `name slots=8`")
    return slots


def _of_slurm(settings: RunConfig, ranks: int, environment: Mapping[str, str]) -> Nodes:
    """Return the nodes of the Slurm step that this process belongs to."""
    number, tasks = (int(environment[f"SLURM_STEP_NUM_{what}"]) for what in ("NODES", "TASKS"))
    if tasks != number:
        raise UsageError(
            f"srun: {tasks} tasks on {number} nodes are not allowed: use --ntasks-per-node=1; "
            "course starts the ranks of its node"
        )
    names = _ask("scontrol", "show", "hostnames", environment["SLURM_STEP_NODELIST"]).split()
    # The address that Slurm itself uses: the node's name need not be known to DNS.
    address = settings.launch.master_addr or _ask("sinfo", "-h", "-N", "-n", names[0], "-o", "%o").split()[0]
    # As in Lightning (github.com/Lightning-AI/pytorch-lightning, plugins/environments/slurm.py).
    ids = int(environment["SLURM_JOB_ID"]) + int(environment["SLURM_STEP_ID"])
    port = settings.launch.master_port or 15000 + ids % 10000
    return Nodes(dict.fromkeys(names, ranks), int(environment["SLURM_NODEID"]), (address, port))


def _ask(*command: str) -> str:
    """Return the output of a Slurm command. Raises UsageError if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        message = getattr(error, "stderr", None) or str(error)
        raise UsageError(f"srun: {' '.join(command)} failed: {' '.join(message.split())}") from None

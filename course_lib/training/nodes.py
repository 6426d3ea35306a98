"""The nodes of a run: one `course` starts all ranks, those of other machines by ssh, or by `srun` in a Slurm job."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.errors import UsageError, one_line
from course_lib.files import require_file
from course_lib.language.words import tr
from course_lib.training.settings import RunConfig

HERE = "localhost"
# If a node loses its power or network, ssh ends after a minute. Nobody could answer a question for a password.
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
# a line of a hostfile
HOST = re.compile(r"(\S+)\s+slots=(0*[1-9]\d*)")


@dataclass(frozen=True)
class Nodes:
    """The nodes of a run, in the order of their ranks."""

    slots: dict[str, int]  # name → number of ranks
    started_by: Literal["", "ssh", "srun"] = ""  # "": this process starts the ranks on this machine
    address: str = "127.0.0.1"  # of the first node, for the ranks of the others

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return sum(self.slots.values())

    @property
    def first(self) -> str:
        """The name of the node with rank 0."""
        return next(iter(self.slots))

    def of(self, rank: int) -> str:
        """Return the name of the node that has a rank."""
        return [name for name, ranks in self.slots.items() for _ in range(ranks)][rank]


def find(settings: RunConfig) -> Nodes:
    """Return the nodes of a run. Raises UsageError if the settings and this machine do not allow them."""
    launch = settings.launch
    # In a step that the user has started with `srun`, these variables describe the step.
    number = int(os.environ.get("SLURM_STEP_NUM_NODES") or os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    if number > 1 and "SLURM_STEP_NUM_NODES" in os.environ:
        raise UsageError("srun: not allowed; start `course` once in the job, without srun: it starts all ranks")
    if launch.hostfile:
        slots = read_hostfile(launch.hostfile)
        if len(slots) == 1:
            return Nodes(slots)
        address = launch.master_addr or _ask(*SSH, next(iter(slots)), "hostname -I").split()[0]
        return Nodes(slots, "ssh", address)
    wanted, present = launch.ranks, gpus(settings)
    if wanted and present and wanted > present:
        raise UsageError(
            tr("launch.ranks: {wanted} is not allowed; GPUs on this machine: {present}; CPU ranks: launch.device=cpu",
               wanted=wanted, present=present)
        )  # fmt: skip
    ranks = wanted or max(present, 1)
    if number == 1:
        return Nodes({HERE: ranks})
    names = _ask("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    # The address that Slurm itself uses: the node's name need not be known to DNS.
    address = launch.master_addr or _ask("sinfo", "-h", "-N", "-n", names[0], "-o", "%o").split()[0]
    return Nodes(dict.fromkeys(names, ranks), "srun", address)


def gpus(settings: RunConfig) -> int:
    """Return the number of GPUs on this machine that a run may use."""
    if settings.launch.device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count()


def read_hostfile(path: Path) -> dict[str, int]:
    """Return the number of ranks per node from a DeepSpeed hostfile, whose lines are `name slots=N`."""
    slots: dict[str, int] = {}
    for number, text in enumerate(require_file(path).read_text(encoding="utf8").splitlines(), 1):
        if content := text.split("#")[0].strip():
            line = HOST.fullmatch(content)
            if not line or line[1] in slots:
                wanted = "expected `name slots=8`, once for each node"
                raise UsageError(f"launch.hostfile: {path}, line {number}: {text!r} is not allowed: {wanted}")
            slots[line[1]] = int(line[2])
    if not slots:
        raise UsageError(f"launch.hostfile: {path}: names no nodes; expected lines `name slots=8`")
    return slots


def _ask(*command: str) -> str:
    """Return the output of a command of Slurm or on another node. Raises UsageError if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"{' '.join(command)}: {getattr(error, 'stderr', '') or one_line(error)}".rstrip()) from None

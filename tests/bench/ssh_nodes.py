"""Nodes on this machine that are reached by ssh: `apt-get install openssh-server`.

An sshd of its own listens on loopback, with a key and a configuration in a temporary folder. A program `ssh` in front of
PATH knows the names of the nodes, so ~/.ssh is neither read nor written. No process and no file is left behind.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from course_lib.training.starter import free_port

from tests.bench.slurm_cluster import PATH, lacking
from tests.waiting import until

PROGRAMS = ("sshd", "ssh", "ssh-keygen")
SSHD = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 64
"""
SSH = """\
Host {names}
HostName 127.0.0.1
Port {port}
IdentityFile {folder}/user
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking accept-new
BatchMode yes
"""


@dataclass
class Ssh:
    """An sshd, and the environment in which `ssh NAME` reaches it."""

    daemon: psutil.Process
    environment: dict[str, str]

    def sessions(self) -> list[psutil.Process]:
        """Return all processes of the daemon's sessions."""
        return self.daemon.children(recursive=True)

    def kill(self, rank: int) -> None:
        """Kill a node with one rank at once: its ssh session and the rank in it."""
        for session in self.daemon.children():
            tree = [session, *session.children(recursive=True)]
            if any(f"RANK={rank} " in " ".join(process.cmdline()) for process in tree):
                for process in tree:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()


@contextlib.contextmanager
def nodes(*names: str) -> Iterator[Ssh]:
    """Run an sshd that is reached by several names. Raises RuntimeError if none can be started here."""
    if reason := lacking(PROGRAMS, "openssh-server"):
        raise RuntimeError(reason)
    folder = Path(tempfile.mkdtemp(prefix="sshd-"))
    port = free_port()
    values = {"folder": folder, "port": port, "names": " ".join(names)}
    (folder / "sshd_config").write_text(SSHD.format(**values), encoding="utf8")
    (folder / "ssh_config").write_text(SSH.format(**values), encoding="utf8")
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    shim = folder / "bin" / "ssh"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n', encoding="utf8")
    shim.chmod(0o755)
    # Where sshd gives up its privileges.
    Path("/run/sshd").mkdir(exist_ok=True)
    program = shutil.which("sshd", path=PATH)
    assert program
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    running = Ssh(
        psutil.Process(process.pid),
        os.environ | {"PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    try:
        until(lambda: b"Server listening" in (folder / "log").read_bytes(), process)
        yield running
    finally:
        left = running.sessions()
        for each in [running.daemon, *left]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
        psutil.wait_procs(left, timeout=10)
        shutil.rmtree(folder, ignore_errors=True)

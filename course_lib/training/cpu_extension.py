"""DeepSpeed's C++ extensions, and the lock files and shared memory that they leave after a run is killed.

The one for CPU ranks is compiled on first use, or by this module as a script (see the Makefile).
"""

import os
import platform
import shutil
import sys
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from course_lib.language.words import tr

NAME = "deepspeed_shm_comm"
COMPILERS = ("c++", "g++", "clang++")


def build_root() -> Path:
    """Return the folder for compiled extensions: TORCH_EXTENSIONS_DIR, or one for this environment and machine."""
    if given := os.environ.get("TORCH_EXTENSIONS_DIR"):
        return Path(given)
    # torch has a function for its extension folder, but importing torch takes more than a second.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    environment = f"{platform.node()} {sys.prefix} {sys.version} {version('torch')}"
    return cache / "torch_extensions" / sha256(environment.encode()).hexdigest()[:12]


def build_environment() -> dict[str, str]:
    """Return the environment variables with which this machine compiles DeepSpeed's extensions."""
    # With another ninja than that of this Python environment, DeepSpeed would recompile its extensions.
    path = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")]))
    return {"PATH": path, "TORCH_EXTENSIONS_DIR": str(build_root())}


def needs_compiling() -> bool:
    """Return whether a CPU rank compiles the extension first; only on Linux: elsewhere DeepSpeed uses gloo."""
    return sys.platform == "linux" and not (build_root() / NAME / f"{NAME}.so").exists()


def compile_ahead() -> None:
    """Compile the extension if that is needed and possible here. Problems are only printed."""
    if not needs_compiling():
        return
    if not any(map(shutil.which, COMPILERS)):
        print(tr("no C++ compiler: DeepSpeed cannot train on CPU ranks; apt-get install g++"))
        return
    print(tr("compiling DeepSpeed's extension for CPU ranks (once; about a minute)"), flush=True)
    # With other variables than those of a rank, DeepSpeed would compile the extension again.
    os.environ |= {"DS_ACCELERATOR": "cpu"} | build_environment()
    try:
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        remove_stale_locks()
        ShareMemCommBuilder().load(verbose=False)
    # A failed compilation must not stop the installation; a run will try again and report the error.
    except Exception as error:
        print(tr("not compiled; the first run tries again: {error}", error=error))


def remove_stale_locks() -> None:
    """Remove lock files for compiled torch extensions that no process has open (/proc): they would block every run."""
    held, locks = set(), {lock.resolve() for lock in build_root().glob("*/lock")}
    if not locks or not Path("/proc/self/fd").is_dir():
        return
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        # The process may have exited or may belong to another user.
        with suppress(OSError):
            held.add(link.readlink())
    for lock in locks - held:
        lock.unlink(missing_ok=True)


def unlink_shared_buffer() -> None:
    """Unlink this rank's shared-memory buffer (69 MB) after init_distributed: it is freed when the last rank exits."""
    import torch.distributed

    # Now all ranks have mapped the buffer, whose name comes from csrc/cpu/comm/shm.cpp in DeepSpeed.
    torch.distributed.barrier()
    env = os.environ
    name = f"deepspeed_allreduce_buffer_{os.getuid()}_{env['MASTER_ADDR']}_{env['MASTER_PORT']}_{env['RANK']}"
    Path("/dev/shm", name).unlink(missing_ok=True)


if __name__ == "__main__":
    compile_ahead()

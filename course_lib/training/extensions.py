"""DeepSpeed's C++ extensions, which it compiles for offload, and the lock files that a killed run leaves."""

import os
import platform
import sys
import time
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

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


def skip_shared_memory() -> None:
    """Keep DeepSpeed from compiling its all-reduce in shared memory, a minute: only its inference uses it.

    CPU ranks train over gloo (comm/torch.py of DeepSpeed 0.19.8). Call this before DeepSpeed's init_distributed.
    """
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def remove_stale_locks() -> None:
    """Remove lock files for compiled torch extensions that no process has open (/proc): they would block every run.

    Whoever holds a lock closes it, and then removes it: between the two, a living lock looks like a stale one. So a
    lock is stale if the same file is seen unopened twice.
    """
    stale = _unopened_locks()
    if stale:
        time.sleep(0.1)
        stale = stale & _unopened_locks()
    for lock, number, _ in stale:
        with suppress(FileNotFoundError):
            if lock.stat().st_ino == number:
                lock.unlink()


def _unopened_locks() -> set[tuple[Path, int, int]]:
    """Return the lock files that no process has open, with the number of the file and the time of its change."""
    locks = {}
    for lock in build_root().resolve().glob("*/lock"):
        with suppress(FileNotFoundError):
            status = lock.stat()
            locks[lock] = (lock, status.st_ino, status.st_ctime_ns)
    if not locks or not Path("/proc/self/fd").is_dir():
        return set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        # The process may have exited or may belong to another user.
        with suppress(OSError):
            locks.pop(link.readlink(), None)
    return set(locks.values())

"""What DeepSpeed's parts for CPU ranks leave behind when a run is killed, and would stop or starve every later one."""

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def remove_stale_locks() -> None:
    """Removes locks of torch's compiled extensions that no process holds: a run killed while it compiles leaves one, and the next would wait
    for it forever.

    torch.utils.file_baton keeps its lock file open while it holds it, so an owner shows in /proc; without /proc nothing
    is removed.
    """
    from torch.utils.cpp_extension import get_default_build_root

    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    locks = [lock for pattern in ("*/lock", "*/*/lock") for lock in root.glob(pattern)]
    if locks and Path("/proc/self/fd").is_dir():
        held = _open_files()
        for lock in locks:
            if lock.resolve() not in held:
                lock.unlink(missing_ok=True)


@contextmanager
def no_stale_locks(every: float = 2.0) -> Iterator[None]:
    """While open, stale locks are removed, now and every so many seconds: another run may be killed while this one waits for it to compile."""
    over = threading.Event()

    def watch() -> None:
        while True:
            remove_stale_locks()
            if over.wait(every):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _open_files() -> set[Path]:
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # a process that has ended, or another user's
            found.add(link.readlink())
    return found


def unlink_shared_buffer() -> None:
    """Takes the name from this rank's buffer of shared memory, 69 MB that would stay until the machine is started again.

    To be called by every rank after deepspeed.init_distributed(): then all have mapped it, and it is freed when the
    last of them ends, however it ends. The name is the one in DeepSpeed's csrc/cpu/comm/shm.cpp.
    """
    import torch.distributed

    torch.distributed.barrier()
    seen = os.environ
    name = f"deepspeed_allreduce_buffer_{os.getuid()}_{seen['MASTER_ADDR']}_{seen['MASTER_PORT']}_{seen['RANK']}"
    Path("/dev/shm", name).unlink(missing_ok=True)

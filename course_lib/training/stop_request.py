"""A request to a rank, by monitor.py or Slurm, to save a checkpoint after the current step and stop: SIGUSR1."""

import signal
import threading

SIGNAL = signal.SIGUSR1
_received = threading.Event()


def listen() -> None:
    """Record the signal from now on, instead of ending the process."""
    signal.signal(SIGNAL, lambda *_: _received.set())
    # Restart system calls that the signal interrupts, such as those of a collective operation.
    signal.siginterrupt(SIGNAL, False)


def agreed(device: object) -> bool:
    """Return whether any rank has received the request: all must save the same step. All call this after a step."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return _received.is_set()
    received = torch.tensor(float(_received.is_set()), device=str(device))
    dist.all_reduce(received)
    return bool(received)

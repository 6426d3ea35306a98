"""A process that has trained is as before: random generators, threads, gradients, environment and memory."""

import ctypes
import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import torch
from torch import nn

from course_lib.checkpoints.compute import SMALL
from course_lib.training.settings import RunConfig

# glibc's parameters for mallopt(3), and their defaults
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
DEFAULTS = {M_TRIM_THRESHOLD: 128 * 1024, M_MMAP_MAX: 65536}


@contextmanager
def as_before(settings: RunConfig) -> Iterator[None]:
    """Train in the block: with gradients, and memory that stays allocated. Then restore what training changes."""
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
    on_gpu = torch.cuda.is_available() and settings.launch.device != "cpu"
    of_gpus = torch.cuda.get_rng_state_all() if on_gpu else []
    threads = torch.get_num_threads()
    if on_gpu:
        # The log has the peak of this run.
        torch.cuda.reset_peak_memory_stats()
    try:
        # By default, glibc returns the logits' memory to the system after each step, and the system zeroes it again.
        _mallopt({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 1 << 30})
        with torch.enable_grad():
            yield
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])
        torch.set_rng_state(generators[2])
        if on_gpu:
            torch.cuda.set_rng_state_all(of_gpus)
        torch.set_num_threads(threads)
        gc.collect()
        if on_gpu:
            torch.cuda.empty_cache()
        _mallopt(DEFAULTS)
        _give_memory_back()


def use_threads(settings: RunConfig, model: nn.Module) -> None:
    """Choose the number of CPU threads of a process that trains alone: launch.threads, or one for a small model."""
    if settings.launch.threads:
        torch.set_num_threads(settings.launch.threads)
    elif sum(parameter.numel() for parameter in model.parameters()) <= SMALL:
        torch.set_num_threads(1)


def seed_all(seed: int) -> None:
    """Seed the random generators of Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _mallopt(values: dict[int, int]) -> None:
    """Set parameters of glibc's allocator; other C libraries have none."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for parameter, value in values.items():
            library.mallopt(parameter, value)


def _give_memory_back() -> None:
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

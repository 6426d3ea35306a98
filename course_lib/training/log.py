"""The log of a run, with averages per interval: lines of text for people, and JSON objects for programs (log.jsonl)."""

import math
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from course_lib.files import atomic_write

FILE = "log.jsonl"
# bytes that `tail` reads, some ten entries
TAIL = 5000
# Peak speed for dense 16-bit matrix products, from vendor data sheets [TFLOP/s]. The first key whose words occur in
# the device name is used, so longer keys come first.
PEAK_TFLOPS = {
    "H200": 989.0, "H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.0, "H800": 989.0, "A100": 312.0, "A800": 312.0,
    "A10G": 70.0, "A10": 125.0, "L40S": 362.0, "L4": 121.0, "V100": 125.0, "T4": 65.0, "RTX 4090": 165.0,
    "RTX 3090": 71.0,
}  # fmt: skip


@dataclass
class Meter:
    """A meter for time and speed between log entries."""

    tokens_per_step: float  # over all ranks, without padding
    ranks: int
    flops_per_token: float  # forward and backward pass, without recomputation
    peak_flops: float | None  # per device [FLOP/s]; None if unknown
    clock: Callable[[], float] = perf_counter

    def __post_init__(self) -> None:
        self.restart(0)

    def restart(self, step: int) -> None:
        """Begin to measure at `step`."""
        self._seconds = 0.0
        self._begin(step)

    def _begin(self, step: int) -> None:
        """Begin an interval at `step`."""
        self._last_step, self._started, self._reading = step, self.clock(), 0.0

    def seconds(self) -> float:
        """Return the time of training since `restart` [s]."""
        return self._seconds + self.clock() - self._started

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count the time spent in the block as time for reading data."""
        started = self.clock()
        yield
        self._reading += self.clock() - started

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock during the block, for work that is not training."""
        started = self.clock()
        yield
        self._started += self.clock() - started

    def read(self, step: int) -> dict[str, float]:
        """Return averages since the last call (seconds, speeds), and begin the next interval at `step`."""
        steps = max(step - self._last_step, 1)
        # seconds per step
        cost = max(self.clock() - self._started, 1e-9) / steps
        tokens = self.tokens_per_step / cost
        averages = {
            "reader_cost": self._reading / steps,
            "batch_cost": cost,
            "steps_per_second": 1 / cost,
            "tokens_per_second": tokens,
            "tokens_per_second_per_rank": tokens / self.ranks,
        }
        if self.peak_flops:
            averages["flops_utilization"] = tokens / self.ranks * self.flops_per_token / self.peak_flops
        self._seconds = self.seconds()
        self._begin(step)
        return averages


def peak_flops(given: float | None, device: Any) -> float | None:
    """Return the peak of a PyTorch device [FLOP/s]: `given` [TFLOP/s] or that of PEAK_TFLOPS, None if unknown."""
    import torch

    if given is not None:
        return given * 1e12
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak * 1e12 for card, peak in PEAK_TFLOPS.items() if re.search(rf"\b{card}\b", name)), None)


def peak_memory(device: Any) -> int:
    """Return the peak memory use of this rank so far [bytes]: on its device if that is a GPU, else in its process."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def line(entry: dict[str, Any]) -> str:
    """Format a log entry as one line of text, with the field names of the FleetX log."""
    if entry["kind"] != "train":
        step = f"[{entry['kind']}] global step {entry['step']}"
        return f"{step}, loss: {entry['loss']:.6f}, cost: {entry['seconds']:.2f} sec"
    parts = [
        f"[train] global step {entry['step']}, epoch: {entry['epoch']:.3f}, loss: {entry['loss']:.6f}",
        f"avg_reader_cost: {entry['reader_cost']:.5f} sec, avg_batch_cost: {entry['batch_cost']:.5f} sec",
        f"speed: {entry['steps_per_second']:.2f} step/s",
        f"ips_total: {entry['tokens_per_second']:.0f} tokens/s",
        f"ips: {entry['tokens_per_second_per_rank']:.0f} tokens/s",
        # DeepSpeed reports no gradient norm with stage 0 in fp32.
        f"learning rate: {entry['learning_rate']:.5e}, grad norm: {entry.get('grad_norm', math.nan):.3f}",
        f"memory: {entry['memory'] / 1e9:.2f} GB",
    ]
    if "loss_scale" in entry:
        parts.append(f"loss scale: {entry['loss_scale']:g}, steps skipped: {entry['skipped_steps']}")
    if "flops_utilization" in entry:
        parts.append(f"FLOPs utilization: {entry['flops_utilization']:.1%}")
    return ", ".join(parts)


def append(run: Path, entry: dict[str, Any]) -> None:
    """Append an entry to log.jsonl in the run folder."""
    with open(run / FILE, "ab") as file:
        file.write(orjson.dumps(entry) + b"\n")


def keep_until(run: Path, step: int) -> None:
    """Remove the entries of later steps, which a run that continues from `step` repeats."""
    earlier = [entry for entry in read(run) if entry["step"] <= step]
    with atomic_write(run / FILE) as file:
        file.writelines(orjson.dumps(entry) + b"\n" for entry in earlier)


def read(run: Path) -> list[dict[str, Any]]:
    """Return the log entries of a run, ordered by step."""
    content = (run / FILE).read_bytes() if (run / FILE).exists() else b""
    entries = {(entry["step"], entry["kind"]): entry for entry in _entries(content)}
    return [entries[key] for key in sorted(entries)]


def tail(run: Path) -> list[dict[str, Any]]:
    """Return the last log entries of a run, in the order in which they were written."""
    if not (run / FILE).exists():
        return []
    with open(run / FILE, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
        return list(_entries(file.read()))


def _entries(content: bytes) -> Iterator[dict[str, Any]]:
    for text in content.splitlines():
        # A killed run may leave an incomplete line; the first line of a tail, too, may be one.
        with suppress(orjson.JSONDecodeError):
            yield orjson.loads(text)

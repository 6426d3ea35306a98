"""What a rank runs on: how much memory it has taken, and the peak rate of known cards."""

import resource
import sys

PEAK_TFLOPS = {  # dense 16-bit matrix products, from the makers' data sheets [TFLOP/s]; the first name that fits counts
    "H200": 989.0, "H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.0, "H800": 989.0, "A100": 312.0, "A800": 312.0, "A10G": 70.0,
    "A10": 125.0, "L40S": 362.0, "L4": 121.0, "V100": 125.0, "T4": 65.0, "RTX 4090": 165.0, "RTX 3090": 71.0,
}  # fmt: skip


def peak_flops(given: float | None) -> float | None:
    """Peak of this rank's device [FLOP/s]: the setting (in TFLOP/s), else that of a known card, else None."""
    import torch

    if given is not None:
        return given * 1e12
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((peak * 1e12 for card, peak in PEAK_TFLOPS.items() if card in name), None)


def peak_memory() -> int:
    """The most memory this rank has held so far [bytes]: of its GPU, else of the process."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

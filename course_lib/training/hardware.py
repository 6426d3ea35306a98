"""Properties of the device that a rank runs on: peak memory use, and peak FLOP/s for known GPUs."""

import re
import resource
import sys

# Peak speed for dense 16-bit matrix products, from vendor data sheets [TFLOP/s]. The first key whose words occur in
# the device name is used, so longer keys come first.
PEAK_TFLOPS = {
    "H200": 989.0, "H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.0, "H800": 989.0, "A100": 312.0, "A800": 312.0,
    "A10G": 70.0, "A10": 125.0, "L40S": 362.0, "L4": 121.0, "V100": 125.0, "T4": 65.0, "RTX 4090": 165.0,
    "RTX 3090": 71.0,
}  # fmt: skip


def peak_flops(given: float | None) -> float | None:
    """Return the device's peak [FLOP/s]: `given` [TFLOP/s] or that of PEAK_TFLOPS, None if it is unknown."""
    import torch

    if given is not None:
        return given * 1e12
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((peak * 1e12 for card, peak in PEAK_TFLOPS.items() if re.search(rf"\b{card}\b", name)), None)


def peak_memory() -> int:
    """Return the peak memory use of this rank so far [bytes]: on its GPU if there is one, otherwise in its process."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

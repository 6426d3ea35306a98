"""Names of the weight dtypes, as used in settings and commands. torch_dtypes.py maps them to torch dtypes."""

from contextlib import suppress
from pathlib import Path
from typing import Literal

NumberFormat = Literal["fp32", "bf16", "fp16"]
# Bytes per element.
BYTES: dict[NumberFormat, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
# The little-endian NumPy dtypes; NumPy has no bf16.
NUMPY: dict[NumberFormat, str] = {"fp32": "<f4", "fp16": "<f2"}
# What Linux tells of the processor.
PROCESSOR = Path("/proc/cpuinfo")


def of_processor() -> NumberFormat:
    """Return bf16 if this processor has instructions for it (avx512_bf16, amx_bf16), else, or if unknown, fp32.

    Without them, products of matrices in bf16 take 50 times as long as in fp32 (torch 2.13, one AVX2 core).
    """
    with suppress(OSError):
        flags = PROCESSOR.read_text(encoding="utf8").split()
        if {"avx512_bf16", "amx_bf16"} & {*flags}:
            return "bf16"
    return "fp32"

"""Names of the weight dtypes, as used in settings and commands. torch_dtypes.py maps them to torch dtypes."""

from typing import Literal

NumberFormat = Literal["fp32", "bf16", "fp16"]
# Bytes per element.
BYTES: dict[NumberFormat, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
# The little-endian NumPy dtypes; NumPy has no bf16.
NUMPY: dict[NumberFormat, str] = {"fp32": "<f4", "fp16": "<f2"}

"""The number formats of weights, by the names in settings and verbs; no torch (torch_dtypes.py has torch's types)."""

from typing import Literal

NumberFormat = Literal["fp32", "bf16", "fp16"]
# Bytes per number.
BYTES: dict[NumberFormat, int] = {"fp32": 4, "fp16": 2, "bf16": 2}

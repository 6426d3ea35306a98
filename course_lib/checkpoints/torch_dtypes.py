"""The torch dtypes, keyed by their names in number_formats.py and in safetensors files."""

import torch

from course_lib.checkpoints.number_formats import NumberFormat

TORCH: dict[NumberFormat, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
NAMES: dict[torch.dtype, NumberFormat] = {dtype: name for name, dtype in TORCH.items()}
SAFETENSORS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool, "U8": torch.uint8,
    "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
}  # fmt: skip
# The dtypes allowed for stored weights.
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def torch_name(dtype: torch.dtype) -> str:
    """Return PyTorch's name for a dtype, such as bfloat16."""
    return str(dtype).removeprefix("torch.")

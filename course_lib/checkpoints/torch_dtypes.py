"""The torch dtypes, keyed by their names in number_formats.py."""

import torch

from course_lib.checkpoints.number_formats import NumberFormat

TORCH: dict[NumberFormat, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# The dtypes allowed for stored weights.
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def torch_name(dtype: torch.dtype) -> str:
    """Return PyTorch's name for a dtype, such as bfloat16."""
    return str(dtype).removeprefix("torch.")

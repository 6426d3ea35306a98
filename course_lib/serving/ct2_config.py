"""Settings for `course ct2 export`. This module does not import torch, so that `--help` is fast."""

from typing import Literal

# Data type of the weight matrices. The part after the underscore is the data type of all other weights; with plain
# int8, these keep their data type.
Quantization = Literal[
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"
]

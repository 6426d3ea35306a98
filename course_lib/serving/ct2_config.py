"""Settings of `course ct2 export`. Nothing here imports torch, so that `--help` stays quick."""

from typing import Literal

Quantization = Literal[
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"
]  # of matrices; what is none becomes what stands behind the underscore, with int8 alone it stays as it is

"""Settings of `course ct2 export`. Imports no torch, so that `--help` is fast."""

from typing import Literal

# Number format of the matrices. The part after the underscore is the format of all other weights;
# with plain int8 these keep their format.
Quantization = Literal[
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"
]

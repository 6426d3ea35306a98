"""Settings of chapter 7 in a profile, and the number formats of `course ct2 export`. Imports no torch."""

from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting

# Number format of the matrices for CTranslate2. The part after the underscore is the format of all other weights;
# with plain int8 these keep their format.
Quantization = Literal[
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"
]


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """How the profile's base model and prefixes are exported for serving."""

    tensor_parallel: int = setting(1, "number of ranks (GPUs of the engine) that share the weights", ge=1, le=1024)
    dtype: Literal["fp32", "fp16", "bf16"] = setting(
        "fp32", "number format of the weights; FasterTransformer's converters write fp32 and fp16 only"
    )
    name: str | None = setting(None, "model_name in config.ini; unset: the name of the base model's folder")

"""Profile settings for chapter 7, and the number formats of CTranslate2. This module does not import torch."""

from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.settings.config import STRICT, Section, setting

# Data type of the weight matrices, and after an underscore that of all other weights, which plain int8 leaves as it is
Quantization = Literal[
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"
]


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """Settings for exporting the profile's base model and prefixes."""

    tensor_parallel: int = setting(1, "number of ranks (GPUs of the engine) that share the weights", ge=1, le=1024)
    dtype: Literal["fp32", "fp16", "bf16"] = setting(
        "fp32", "number format of the weights; FasterTransformer's converters write fp32 and fp16 only"
    )
    name: str | None = setting(None, "model_name in config.ini; unset: the name of the base model's folder")


# The chapter's section of a profile.
RECIPE_SECTION = Section("serving.recipe", RecipeConfig)

"""What a profile says of chapter 7."""

from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """How the profile's base and prefixes are written for serving."""

    tensor_parallel: int = setting(1, "ranks the weights are split for: GPUs of the engine", ge=1, le=1024)
    dtype: Literal["fp32", "fp16", "bf16"] = setting(
        "fp32", "number format of the folder; the engine's own: fp32, fp16"
    )
    name: str | None = setting(None, "model_name in config.ini; unset: that of the base's folder")

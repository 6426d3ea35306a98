"""Settings for chapter 7: those of the profiles, and of `course ask`; number formats. This module imports no torch."""

from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.generation.config import LEAST, MOST
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


@dataclass(frozen=True, config=STRICT)
class AskConfig:
    """Settings for continuing a text. The fields correspond to request tensors for the FasterTransformer backend."""

    output_length: int = setting(32, "maximum length of the continuation [tokens]", ge=1, lt=1 << 31)
    top_k: int = setting(1, "draw from this many most likely tokens; 1: greedy; 0: from all", ge=0, lt=1 << 31)
    top_p: float = setting(0.0, "share of the top_k's probability; 0: all, or greedy if top_k is 0", ge=0, le=1)
    temperature: float = setting(
        1.0, "divisor of the logits; below 1 favours the most likely tokens", ge=LEAST, le=MOST
    )
    repetition_penalty: float = setting(
        1.0, "above 1: tokens in the text become less likely (arXiv:1909.05858)", ge=LEAST, le=MOST
    )
    seed: int = setting(0, "seed of the random generator; the same seed gives the same text", ge=0, lt=1 << 64)
    bad_words: list[str] = setting([], "words that are never generated")
    stop_words: list[str] = setting([], "words that end the text; it ends after the first of them")

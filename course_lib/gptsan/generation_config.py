"""Settings for `course gptsan generate` (see generate.py). This module does not import torch."""

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.settings.config import STRICT, setting

SPOUTS = ("none", "uniform", "zeros")


@dataclass(frozen=True, config=STRICT)
class GenerateConfig:
    """Settings for generation. The defaults match run_generate.py in tanreinama/GPTSAN."""

    spout: int | str = setting(
        "none",
        "none, uniform (noise from [0, 1) for each text), zeros, or a class number from 0; the model must have been "
        "trained with the same kind of spout input",
    )
    seed: int | None = setting(0, "seed of the random generator; unset: different texts in each call", ge=0, lt=1 << 32)
    num_generate: int = setting(1, "number of texts, sampled independently", ge=1, le=1024)
    max_new_tokens: int = setting(
        300, "maximum length of the continuation [tokens]; also limited by the model's positions", ge=1
    )
    top_k: int = setting(120, "sample from this number of most probable tokens; 0 = all", ge=0)
    temperature: float = setting(
        1.0, "the logits are divided by it; below 1: probable tokens become more probable", ge=0.01, le=1e6
    )
    greedy: bool = setting(False, "always choose the most probable token, without sampling")

    @model_validator(mode="after")
    def _together(self) -> "GenerateConfig":
        if self.spout not in SPOUTS and not str(self.spout).isdecimal():
            raise ValueError(
                f"spout: {self.spout!r} is not allowed; allowed: none, uniform, zeros, or a class number from 0"
            )
        if self.greedy and self.num_generate > 1 and self.spout != "uniform":
            raise ValueError(
                f"num_generate: {self.num_generate} is not allowed with greedy: all texts would be the same; "
                "allowed: 1, or spout uniform"
            )
        return self

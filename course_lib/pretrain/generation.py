"""Settings of `course generate`. Nothing here imports torch, so that `--help` stays quick; the work is generate.py's."""

from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting

MAX_NEW_TOKENS = 200  # where the model's positions leave so many


@dataclass(frozen=True, config=STRICT)
class GenerateConfig:
    """How a text goes on. Lengths are those of the continuation, the prompt not counted."""

    strategy: Literal["sampling", "greedy", "beam"] = setting(
        "sampling", "draw each token, take the likeliest one, or keep the num_beams likeliest texts"
    )
    max_new_tokens: int | None = setting(
        None, f"longest continuation [tokens]; unset: {MAX_NEW_TOKENS}, or what the model's positions leave", ge=1
    )
    min_new_tokens: int = setting(1, "shortest continuation [tokens]", ge=0)
    num_return_sequences: int = setting(1, "texts per prompt", ge=1, le=1024)
    top_k: int = setting(50, "sampling: only among so many likeliest tokens; 0 = all", ge=0)
    top_p: float = setting(
        0.75, "sampling: only among the likeliest tokens that make up this share of the top_k", gt=0, le=1
    )
    temperature: float = setting(1.0, "sampling: logits are divided by it; below 1 nearer to greedy")
    num_beams: int | None = setting(None, "beam: texts kept at each step; unset: 4", ge=2, le=1024)
    length_penalty: float = setting(1.0, "beam: scores are divided by length to this power; above 0 favours long texts")
    early_stopping: bool = setting(False, "beam: end as soon as num_beams texts are finished")
    repetition_penalty: float = setting(
        1.0, "above 1: tokens that occurred become less likely (arXiv:1909.05858)", gt=0
    )
    no_repeat_ngram_size: int = setting(0, "no sequence of so many tokens occurs twice; 0 = off", ge=0)
    seed: int | None = setting(1024, "same seed, same texts; unset: other ones each time", ge=0, lt=1 << 32)

    @model_validator(mode="after")
    def _together(self) -> "GenerateConfig":
        if self.temperature <= 0:
            raise ValueError(
                f"temperature: {self.temperature} is not allowed: must be above 0; strategy=greedy takes the likeliest token each time"
            )
        if self.num_beams and self.strategy != "beam":
            raise ValueError(
                f"num_beams: {self.num_beams} is not allowed with strategy={self.strategy}: needs strategy=beam"
            )
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens: {self.min_new_tokens} is not allowed: above max_new_tokens ({self.max_new_tokens})"
            )
        most = {"sampling": None, "greedy": 1, "beam": self.beams}[self.strategy]
        if most and self.num_return_sequences > most:
            raise ValueError(
                f"num_return_sequences: {self.num_return_sequences} is not allowed: strategy={self.strategy} gives at most {most}"
            )
        return self

    @property
    def beams(self) -> int:
        """Texts kept at each step."""
        return self.num_beams or (4 if self.strategy == "beam" else 1)

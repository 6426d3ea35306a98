"""Settings of `course gptsan generate` and of mask filling. Nothing here imports torch; the work is generate.py's and fill.py's."""

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting

SPOUTS = ("none", "uniform", "zeros")


@dataclass(frozen=True, config=STRICT)
class SpoutSettings:
    """What the spout is fed with; the model has to have been trained with the like."""

    spout: int | str = setting("none", "none, uniform (noise from [0, 1) for each text), zeros, or a class from 0 on")
    seed: int | None = setting(0, "same seed, same texts; unset: other ones each time", ge=0, lt=1 << 32)

    @model_validator(mode="after")
    def _spout(self) -> "SpoutSettings":
        if self.spout not in SPOUTS and not str(self.spout).isdecimal():
            raise ValueError(f"spout: {self.spout!r} is not allowed: none, uniform, zeros, or a class from 0 on")
        return self

    @property
    def label(self) -> int | None:
        """The class, where one was asked for."""
        return None if self.spout in SPOUTS else int(self.spout)


@dataclass(frozen=True, config=STRICT)
class GenerateConfig(SpoutSettings):
    """How a text goes on. The defaults are those of the original's run_generate.py."""

    num_generate: int = setting(1, "texts, drawn independently", ge=1, le=1024)
    max_new_tokens: int = setting(300, "longest continuation [tokens]; less where the model's positions end", ge=1)
    top_k: int = setting(120, "draw among so many likeliest tokens; 0 = all", ge=0)
    temperature: float = setting(1.0, "logits are divided by it; below 1 nearer to the likeliest", ge=0.01)
    greedy: bool = setting(False, "take the likeliest token each time, draw nothing")
    original_prompt: bool = setting(
        False,
        "read text as the original's generator does: uncleaned, sentence ends and runs as they are. Training reads a sentence end as SEP",
    )

    @model_validator(mode="after")
    def _texts(self) -> "GenerateConfig":
        if self.greedy and self.num_generate > 1 and self.spout != "uniform":
            raise ValueError(
                f"num_generate: {self.num_generate} is not allowed with greedy: all texts would be the same one; allowed: 1, or spout uniform"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class FillConfig(SpoutSettings):
    """How masks are filled."""

    choices: int = setting(5, "pieces given for each mask, likeliest first", ge=1, le=1000)
    no_offset: bool = setting(
        False, "read a masked token at its own position: for models trained on examples encoded with no_offset_mlm"
    )

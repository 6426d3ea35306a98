"""Settings for text generation; generator.py does the work.

This module does not import torch, so that `--help` stays fast.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.errors import UsageError
from course_lib.language.words import tr, tr_noop
from course_lib.settings import config
from course_lib.settings.config import STRICT, setting

MAX_NEW_TOKENS = 200  # default maximum length of a continuation; less if the model has fewer positions left
# Limits of numbers that multiply or divide logits, which stay finite in fp32. With the lowest temperature the likeliest
# token is chosen, with the highest one any token.
LEAST, MOST = 1e-6, 1e6
# What applies where neither the user nor the model's generation_config.json says anything.
SAMPLING = {"top_k": 50, "top_p": 0.75, "temperature": 1.0}
PENALTIES = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
# The keys of a generation_config.json that say how the next token is chosen.
CHOOSING = ("do_sample", "num_beams", *SAMPLING, *PENALTIES)


@dataclass(frozen=True, config=STRICT)
class GenerateConfig:
    """Settings for text generation. Lengths apply to the continuation only, not to the prompt.

    What decides on the next token may be unset: `completed` then takes the model's own value, or the default.
    """

    strategy: Literal["sampling", "greedy", "beam"] | None = setting(
        None, "how the next token is chosen; unset: the model's own way, or sampling"
    )
    max_new_tokens: int | None = setting(
        None, f"longest continuation [tokens]; unset: {MAX_NEW_TOKENS}, or the positions that are left", ge=1
    )
    min_new_tokens: int = setting(1, "shortest continuation [tokens]", ge=0)
    num_return_sequences: int = setting(1, "texts per prompt", ge=1, le=1024)
    top_k: int | None = setting(
        None, "sampling: draw only from this many most likely tokens; 0 = all; unset: the model's own, or 50", ge=0
    )
    top_p: float | None = setting(
        None,
        "sampling: draw only from this share of the top_k's probability; unset: the model's own, or 0.75",
        gt=0,
        le=1,
    )
    temperature: float | None = setting(
        None,
        "sampling: divides the logits; values below 1 favour likely tokens; unset: the model's own, or 1.0",
        ge=LEAST,
        le=MOST,
    )
    num_beams: int | None = setting(None, "beam: texts kept at each step; unset: 4", ge=2, le=1024)
    length_penalty: float = setting(
        1.0, "beam: scores are divided by length to this power; above 0 favours long texts", ge=-10, le=10
    )
    early_stopping: bool = setting(False, "beam: stop as soon as num_beams texts are finished")
    repetition_penalty: float | None = setting(
        None,
        "above 1: tokens in the text become less likely (arXiv:1909.05858); unset: the model's own, or 1.0",
        ge=LEAST,
        le=MOST,
    )
    no_repeat_ngram_size: int | None = setting(
        None, "no sequence of this many tokens occurs twice; 0 = off; unset: the model's own, or 0", ge=0
    )
    seed: int | None = setting(1024, "the same seed gives the same texts; unset: a new one each time", ge=0, lt=1 << 32)

    @model_validator(mode="after")
    def _together(self) -> "GenerateConfig":
        if self.num_beams and self.strategy != "beam":
            raise ValueError(f"num_beams: {self.num_beams} is not allowed: needs strategy=beam")
        if self.strategy not in (None, "sampling") and self.num_return_sequences > self.beams:
            most = f"strategy={self.strategy} gives at most {self.beams}"
            raise ValueError(f"num_return_sequences: {self.num_return_sequences} is not allowed: {most}")
        return self

    @property
    def beams(self) -> int:
        """Number of texts kept at each step of beam search; 1 for the other strategies."""
        return self.num_beams or (4 if self.strategy == "beam" else 1)

    def completed(self, of_model: Mapping[str, Any], file: Path | None = None) -> "GenerateConfig":
        """Return the settings with strategy, sampling and penalties set.

        What is unset comes from `of_model`, the content of the model's generation_config.json with the path `file`, or
        else from the defaults above. A do_sample of false is the strategy greedy, or beam with a num_beams above 1. The
        file's other keys do not count, lengths among them. Raises UsageError if a value of the file is not allowed.
        """
        values = {name: value for name, value in config.to_dict(self).items() if value is not None}
        if self.strategy is None:
            values["strategy"] = "sampling"
            if of_model.get("do_sample") is False:
                beams = of_model.get("num_beams") or 1
                values |= {"strategy": "greedy"} if beams == 1 else {"strategy": "beam", "num_beams": beams}
        defaults = SAMPLING | PENALTIES
        # Other strategies read no setting of sampling, so what the file says of it need not be allowed.
        names = defaults if values["strategy"] == "sampling" else PENALTIES
        given = {name: of_model[name] for name in names if of_model.get(name) is not None}
        return config.build(GenerateConfig, {"seed": None} | defaults | given | values, where=str(file or ""))

    def longest_continuation(self, prompt: int, positions: int | None) -> int:
        """Return the longest continuation [tokens] after `prompt` tokens; `positions` is the model's limit or None."""
        wanted = self.max_new_tokens or max(MAX_NEW_TOKENS, self.min_new_tokens)
        if positions is None:
            return wanted
        left, needed = positions - prompt, self.max_new_tokens or max(self.min_new_tokens, 1)
        if left < needed:
            asked = f"{'max_new_tokens' if self.max_new_tokens else 'min_new_tokens'}: {needed}"
            message = tr_noop("prompt: {prompt} tokens leave {left} of {positions} positions, too few for {asked}")
            raise UsageError(tr(message, prompt=prompt, left=max(left, 0), positions=positions, asked=asked))
        return min(wanted, left)

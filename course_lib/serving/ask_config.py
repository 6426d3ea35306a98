"""Settings for `course ask`. This module imports neither torch nor a client library, so that `--help` is fast."""

from pydantic.dataclasses import dataclass

from course_lib.generation.config import LEAST, MOST
from course_lib.settings.config import STRICT, setting


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

"""Settings of `course ask`. Nothing here imports torch or a client, so that `--help` stays quick."""

from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting
from course_lib.serving.request import MAX_BEAMS


@dataclass(frozen=True, config=STRICT)
class AskConfig:
    """How the server shall go on with a text; what FasterTransformer's tensors say."""

    output_length: int = setting(32, "most to write [tokens]", ge=1, lt=1 << 31)
    top_k: int = setting(
        1, "draw among so many likeliest tokens; 1 = take the likeliest; 0 = all, with top_p", ge=0, lt=1 << 31
    )
    top_p: float = setting(
        0.0, "draw among the likeliest tokens that make up this share of the top_k; 0 = all of them", ge=0, le=1
    )
    temperature: float = setting(1.0, "logits are divided by it; below 1 nearer to the likeliest", gt=0)
    repetition_penalty: float = setting(
        1.0, "above 1: tokens that occurred become less likely (arXiv:1909.05858)", gt=0
    )
    seed: int = setting(0, "same seed, same text", ge=0, lt=1 << 64)
    beam_width: int = setting(1, "above 1: beam search for so many texts, without drawing", ge=1, le=MAX_BEAMS)
    len_penalty: float = setting(0.0, "beam search: log probability is divided by length to this power")
    bad_words: list[str] = setting([], "never written")
    stop_words: list[str] = setting([], "the text ends behind the first of them")

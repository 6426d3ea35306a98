"""Settings of chapter 2."""

from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting


@dataclass(frozen=True, config=STRICT)
class SegmentConfig:
    """How documents become segmented lines."""

    segmenter: Literal["mecab", "jumanpp"] = setting("mecab", "who finds the words; jumanpp needs its binary on PATH")
    normalize: bool = setting(True, "normalize the text first")
    split: bool = setting(True, "one sentence a line; false keeps the document's own lines")
    mark_spaces: bool = setting(
        True, "keep original spaces as ␣ (reversible); false gives the plain form of published models"
    )

"""Settings for chapter 2."""

from typing import Literal

from pydantic.dataclasses import dataclass

from course_lib.settings.config import STRICT, Section, setting


@dataclass(frozen=True, config=STRICT)
class SegmentConfig:
    """Settings for `course segment`, which turns documents into segmented lines."""

    segmenter: Literal["mecab", "jumanpp"] = setting(
        "mecab", "program that finds the words; jumanpp needs its binary on PATH"
    )
    mark_spaces: bool = setting(
        True, "keep original spaces as ␣ (reversible); false drops them, the form that published models expect"
    )


# The chapter's section of a profile.
SEGMENT_SECTION = Section("japanese.segment", SegmentConfig)

"""Chapter 2, Japanese text: normalization, sentence splitting and reversible segmentation into words.

Public functions: normalize, split_sentences, segment, desegment.
"""

from course_lib.japanese.normalize import normalize
from course_lib.japanese.segment import desegment, segment
from course_lib.japanese.sentences import split_sentences

__all__ = ["desegment", "normalize", "segment", "split_sentences"]

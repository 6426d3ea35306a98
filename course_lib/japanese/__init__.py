"""Chapter 2: Japanese text. Normalization, sentence splitting, and segmentation that can be undone.

The public face: normalize, split_sentences, segment, desegment.
"""

from course_lib.japanese.normalize import normalize
from course_lib.japanese.segment import desegment, segment
from course_lib.japanese.sentences import split_sentences

__all__ = ["desegment", "normalize", "segment", "split_sentences"]

"""Segmentation of one text, both ways: words separated by spaces, and back. Files are pipeline.py's work.

segment("Visual Studioを使う")   → 'Visual ␣Studio を 使う'       (marks.py: the ␣ is an original space)
desegment('Visual ␣Studio を 使う') → 'Visual Studioを使う'       for any text, exactly
"""

from course_lib.japanese import mecab
from course_lib.japanese.marks import ESCAPE, MARK, mark, unmark


def segment(text: str, mark_spaces: bool = True) -> str:
    """The words of a text, separated by single spaces, by MeCab with the Juman dictionary.

    With mark_spaces every original space is kept as ␣ and `desegment` gives the text back exactly. Without it original spaces
    are dropped: the plain form that published models expect. Line breaks separate lines and stay.
    """
    return "\n".join(segment_line(line, mark_spaces) for line in text.split("\n"))


def segment_line(text: str, mark_spaces: bool = True) -> str:
    """`segment` of one line."""
    if MARK not in text and ESCAPE not in text and (line := mecab.plain_line(text)) is not None:
        return line
    return join(mecab.words(text), mark_spaces)


def desegment(text: str) -> str:
    """The text that `segment` was given: spaces between words removed, marks turned back into spaces."""
    return unmark(text.replace(" ", ""))


def join(words: list[str], mark_spaces: bool = True) -> str:
    """Words, " " among them for each original space, as one line. A marked space is written at the head of the word behind it."""
    line = " ".join(words)
    if not mark_spaces:
        return line if "  " not in line and line != " " else " ".join(word for word in words if word != " ")
    if "  " not in line and line != " " and MARK not in line and ESCAPE not in line:
        return line
    marked, spaces = [], ""
    for word in words:
        if word == " ":
            spaces += MARK
        else:
            marked.append(spaces + mark(word))
            spaces = ""
    return " ".join([*marked, spaces] if spaces else marked)

"""Segmentation of a text into words separated by spaces, and its inverse. pipeline.py segments files.

segment("Visual Studioを使う")      → 'Visual ␣Studio を 使う'; ␣ is an original space (marks.py)
desegment('Visual ␣Studio を 使う') → 'Visual Studioを使う'; the inverse is exact for any text
"""

from course_lib.japanese import mecab
from course_lib.japanese.marks import ESCAPE, MARK, mark, unmark


def segment(text: str, mark_spaces: bool = True) -> str:
    """Return the words in a text, separated by single spaces, as found by MeCab with the Juman dictionary.

    If `mark_spaces` is true, every original space is kept as ␣, and `desegment` restores the text exactly. Otherwise,
    original spaces are dropped, which is the format that published models expect. Line breaks are kept.
    """
    return "\n".join(join(mecab.words(line), mark_spaces) for line in text.split("\n"))


def desegment(text: str) -> str:
    """Restore the text before segmentation: remove the spaces between words, and replace each mark ␣ with a space."""
    return unmark(text.replace(" ", ""))


def join(words: list[str], mark_spaces: bool = True) -> str:
    """Join words by single spaces; a word " ", an original space, becomes ␣ before the next word, or is dropped."""
    if not mark_spaces:
        return " ".join(word for word in words if word != " ")
    line = " ".join(words)
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

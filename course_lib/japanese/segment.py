"""Segmentation of a text into words separated by spaces, and its inverse. pipeline.py segments files.

segment("Visual Studioを使う")      → 'Visual ␣Studio を 使う'; ␣ is a space of the original text
desegment('Visual ␣Studio を 使う') → 'Visual Studioを使う'; the inverse is exact for any text

A tokenizer's decoder does the replacements of `restore_spaces` in the same order (subword/folder.py).
"""

from course_lib.japanese import mecab

# U+2423 OPEN BOX stands for an original space.
SPACE = "␣"
# U+241B followed by a letter: ␛s and ␛e stand for a ␣ and a ␛ in the text itself, and ␛n for a line break.
ESCAPE = "␛"
NEWLINE = ESCAPE + "n"
# Each is a single token in every tokenizer for text with ␣.
ESCAPES = (NEWLINE, ESCAPE + "s", ESCAPE + "e")
# Regular expression for a ␛ without its letter, as at the end of a generated text that was cut, for the decoder in
# subword/folder.py; ␛n and ␛s have been replaced before.
BROKEN_ESCAPE = ESCAPE + "(?!e)"
# What is written, and what it stands for.
REPLACEMENTS = ((SPACE, " "), (NEWLINE, "\n"), (ESCAPE + "s", SPACE), (ESCAPE + "e", ESCAPE))


def segment(text: str, mark_spaces: bool = True) -> str:
    """Return the words in a text, separated by single spaces, as found by MeCab with the Juman dictionary.

    If `mark_spaces` is true, every original space becomes ␣, and `desegment` restores the text exactly. Otherwise,
    original spaces are dropped, which is the format that published models expect. Line breaks stay.

    The words are MeCab's in every profile, also in a tokenizer that prepares a raw text. `japanese.segment.segmenter`
    chooses the segmenter of files alone, in `pipeline.segment_file`: for Juman++ on a text see jumanpp.py.
    """
    return "\n".join(join(mecab.words(line), mark_spaces) for line in text.split("\n"))


def desegment(text: str) -> str:
    """Restore the text before segmentation: remove the spaces between words, and replace each ␣ by a space."""
    return restore_spaces(text.replace(" ", ""))


def join(words: list[str], mark_spaces: bool = True) -> str:
    """Join words by single spaces; a word " ", an original space, becomes ␣ before the next word, or is dropped."""
    if not mark_spaces:
        return " ".join(word for word in words if word != " ")
    line = " ".join(words)
    if "  " not in line and line != " " and SPACE not in line and ESCAPE not in line:
        return line
    written, spaces = [], ""
    for word in words:
        if word == " ":
            spaces += SPACE
        else:
            written.append(spaces + escape_spaces(word))
            spaces = ""
    return " ".join([*written, spaces] if spaces else written)


def escape_spaces(text: str) -> str:
    """Write each space as ␣, line break as ␛n, ␣ as ␛s and ␛ as ␛e; the result is one line without spaces."""
    if ESCAPE in text or SPACE in text:
        text = text.replace(ESCAPE, ESCAPE + "e").replace(SPACE, ESCAPE + "s")
    return text.replace(" ", SPACE).replace("\n", NEWLINE)


def restore_spaces(text: str) -> str:
    """Return the text that `escape_spaces` was given: its inverse for any text."""
    for written, original in REPLACEMENTS:
        text = text.replace(written, original)
    return text

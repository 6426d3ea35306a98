"""Marks for original spaces, which make segmentation reversible.

An original space is written as ␣, which distinguishes it from the spaces between words:

    Visual Studioを使う  →  segmented: Visual ␣Studio を 使う  →  restored: Visual Studioを使う

`unmark(mark(text)) == text` for any text. A tokenizer's decoder does the replacements of `unmark` in the same order.
"""

# U+2423 OPEN BOX stands for an original space.
MARK = "␣"
# U+241B followed by a letter: ␛s and ␛e stand for a ␣ and a ␛ in the text itself, and ␛n for a line break.
ESCAPE = "␛"
NEWLINE = ESCAPE + "n"
# Each is a single token in every tokenizer for marked text.
ESCAPES = (NEWLINE, ESCAPE + "s", ESCAPE + "e")
# Regular expression for a ␛ without its letter, used after ␛n and ␛s have been replaced.
CUT = ESCAPE + "(?!e)"
REPLACEMENTS = ((MARK, " "), (NEWLINE, "\n"), (ESCAPE + "s", MARK), (ESCAPE + "e", ESCAPE))


def mark(text: str) -> str:
    """Write each space as ␣, line break as ␛n, ␣ as ␛s and ␛ as ␛e; the result is one line without spaces."""
    if ESCAPE in text or MARK in text:
        text = text.replace(ESCAPE, ESCAPE + "e").replace(MARK, ESCAPE + "s")
    return text.replace(" ", MARK).replace("\n", NEWLINE)


def unmark(text: str) -> str:
    """Return the original text for a marked text: the inverse of `mark`."""
    for written, original in REPLACEMENTS:
        text = text.replace(written, original)
    return text

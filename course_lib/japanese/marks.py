"""Making segmentation reversible: original spaces are written as a mark, so that those between words can be told from them.

    Visual Studio を使う  →  Visual ␣Studio を 使う  →  Visual Studioを使う is what everybody else gets back

`mark` and `unmark` are inverse for any text; the replacements of `unmark`, in this order, are also what a tokenizer's decoder does.
"""

MARK = "␣"  # U+2423 OPEN BOX, an original space
ESCAPE = "␛"  # U+241B, before a letter: ␛s and ␛e are a ␣ and a ␛ of the text itself, ␛n is a line break
NEWLINE = ESCAPE + "n"
ESCAPES = (NEWLINE, ESCAPE + "s", ESCAPE + "e")  # one token each in every tokenizer of marked text
CUT = ESCAPE + "(?!e)"  # as a regular expression: once ␛n and ␛s are undone, a ␛ that has lost its letter
REPLACEMENTS = ((MARK, " "), (NEWLINE, "\n"), (ESCAPE + "s", MARK), (ESCAPE + "e", ESCAPE))


def mark(text: str) -> str:
    """Spaces as ␣, line breaks as ␛n; a ␣ or ␛ of the text itself as ␛s, ␛e. The result is one line without spaces."""
    if ESCAPE in text or MARK in text:
        text = text.replace(ESCAPE, ESCAPE + "e").replace(MARK, ESCAPE + "s")
    return text.replace(" ", MARK).replace("\n", NEWLINE)


def unmark(text: str) -> str:
    """The inverse of mark."""
    for written, original in REPLACEMENTS:
        text = text.replace(written, original)
    return text

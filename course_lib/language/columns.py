"""Aligned text on the screen, where a Japanese character takes two columns."""

import unicodedata
from collections.abc import Collection, Sequence

from course_lib.language.words import SOURCE, language


def width(text: str) -> int:
    """Return the columns that a text takes on the screen; in English, its characters."""
    # In English, the labels are ASCII, and a table is padded as by Python's own formats, such as f"{text:<14}": a
    # Japanese character of the data, such as one of a file's name, counts as one column.
    wide = () if language() == SOURCE else (unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + sum(wide)


def padded(text: str, spec: str) -> str:
    """Return a text padded to a number of columns, to the left or the right end as in "<14" and ">14"."""
    space = " " * (int(spec[1:]) - width(text))
    return space + text if spec[0] == ">" else text + space


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a line for each row, with two spaces between the columns; `right` has the right-aligned columns."""
    columns = range(len(rows[0]))
    specs = [f"{'>' if at in right else '<'}{max(width(row[at]) for row in rows)}" for at in columns]
    return ["  ".join(map(padded, row, specs)).rstrip() for row in rows]

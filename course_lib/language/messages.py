"""English texts that go into files or errors and are shown in the reader's language on the terminal; aligned tables.

A function that returns an English text for a file or an error, such as the reason why a product is stale, makes a
Remark. `told` shows it in the reader's language.
"""

from collections.abc import Collection, Sequence
from typing import Any

from course_lib.language.words import SOURCE, error_line, language, tr, wide_characters


class Remark(str):
    """An English text that knows the message and the fields that it was made from; everywhere else it is a `str`.

    The message is a marked literal: `Remark(mark("{name} changed"), name=path)`.
    """

    message: str
    fields: dict[str, Any]

    def __new__(cls, message: str, /, **fields: Any) -> "Remark":
        """Return the finished English text."""
        made = super().__new__(cls, message.format(**fields) if fields else message)
        made.message, made.fields = message, fields
        return made


class Problem(str):
    """The English message of an error, for `told`, without its beginning "SUBJECT: " if a subject is given."""

    whole: str
    subject: str

    def __new__(cls, message: str, subject: object = "") -> "Problem":
        """Return the message without its subject."""
        made = super().__new__(cls, message.removeprefix(f"{subject}: "))
        made.whole, made.subject = message, str(subject)
        return made


def told(text: str) -> str:
    """Return a remark, with the remarks in its fields, a problem or a marked text in the reader's language."""
    if isinstance(text, Problem):
        line = error_line(text.whole)
        return line.removeprefix(text.subject).lstrip(":： ") if text.subject else line
    if not isinstance(text, Remark):
        return tr(text)
    values = {name: told(value) if isinstance(value, Remark) else value for name, value in text.fields.items()}
    return tr(text.message, **values)


def width(text: str) -> int:
    """Return the columns that a text takes on the screen, where a Japanese character takes two.

    In English, where a table's words are narrow, this is the number of characters.
    """
    return len(text) + (0 if language() == SOURCE else wide_characters(text))


def padded(text: str, spec: str) -> str:
    """Return a text padded to a number of columns, to the left or the right end as in "<14" and ">14"."""
    space = " " * (int(spec[1:]) - width(text))
    return space + text if spec[0] == ">" else text + space


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a line for each row, with two spaces between the columns.

    Args:
        rows: texts of the cells; each row has the same number of them.
        right: numbers of the columns that are aligned at their right end.
    """
    columns = range(len(rows[0]))
    specs = [f"{'>' if at in right else '<'}{max(width(row[at]) for row in rows)}" for at in columns]
    return ["  ".join(map(padded, row, specs)).rstrip() for row in rows]

"""Click's messages about wrong usage, in the reader's language."""

import re

from course_lib.language import words
from course_lib.language.words import mark, tr

MESSAGES = (
    mark("No such option: {name}"),
    mark("No such command {name}"),
    mark("Missing argument {name}"),
    mark("Missing option {name}"),
    mark("Option {name} requires an argument"),
    mark("Did you mean"),
    mark("Possible options:"),
)


def translated(text: str) -> str:
    """Return a message of Click with its known parts translated; `{name}` is a word, or stands in quotes."""
    if words.language() == words.SOURCE:
        return text
    for message in MESSAGES:
        pattern = re.escape(message).replace(r"\{name\}", r"(?P<name>'[^']*'|[^\s.]+)")
        if found := re.search(rf"{pattern}\.? ?", text):
            text = text[: found.start()] + tr(message, **found.groupdict()) + text[found.end() :]
    return text

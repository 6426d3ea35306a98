"""What Typer says about wrong usage, in the reader's language: its copy of Click has fixed English sentences."""

import re

from course_lib.language.words import mark, tr

# The sentences of typer/_click (0.26 to 0.29) that a user of `course` can meet. A longer form is before its beginning.
SENTENCES = (
    mark("No such option: {name} (Possible options: {others})"),
    mark("No such option: {name}"),
    mark("No such command {name}. Did you mean {others}?"),
    mark("No such command {name}."),
    mark("Missing argument {name}."),
    mark("Missing option {name}."),
    mark("Option {name} requires an argument."),
    mark("Option {name} does not take a value."),
    mark("Got unexpected extra argument(s) ({words})"),
    mark("Invalid value for {name}: {reason}"),
)


def translated(text: str) -> str:
    """Return a sentence of Typer in the reader's language, with its names; an unknown one as it is."""
    for sentence in SENTENCES:
        # The names are kept: No such option: {name} → No such option: (?P<name>.+?)
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(sentence))
        if found := re.fullmatch(pattern, text):
            return tr(sentence, **found.groupdict())
    return text

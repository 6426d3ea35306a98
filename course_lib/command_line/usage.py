"""What Typer says about wrong usage, in the reader's language: its copy of Click has fixed English sentences."""

import re

from course_lib.language.words import tr, tr_noop

# The sentences of typer/_click (0.26 to 0.29) that a user of `course` can meet. A longer form is before its beginning.
SENTENCES = (
    tr_noop("No such option: {name} (Possible options: {others})"),
    tr_noop("No such option: {name}"),
    tr_noop("No such command {name}. Did you mean {others}?"),
    tr_noop("No such command {name}."),
    tr_noop("Missing argument {name}."),
    tr_noop("Missing option {name}."),
    tr_noop("Option {name} requires an argument."),
    tr_noop("Option {name} does not take a value."),
    tr_noop("Got unexpected extra argument(s) ({words})"),
    tr_noop("Invalid value for {name}: {reason}"),
)


def translated(text: str) -> str:
    """Return a sentence of Typer in the reader's language, with its names; an unknown one as it is."""
    for sentence in SENTENCES:
        # For example: No such option: {name} → No such option: (?P<name>.+?)
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(sentence))
        if found := re.fullmatch(pattern, text):
            return tr(sentence, **found.groupdict())
    return text

"""The tables of settings in course_lib/configs/README.md: a row for each key, with the dataclass that has its field."""

import re
from collections.abc import Iterable

from course_lib.settings.config import Described


def rows(section: str) -> list[list[str]]:
    """The cells of each row for a key in a section of the page."""
    found = re.findall(r"^\| (`[a-z0-9_.]+`) \| (.*) \|$", section, re.MULTILINE)
    return [[key, *rest.split(" | ")] for key, rest in found if not key.endswith(".yaml`")]


def expected(settings: Iterable[Described], prefix: str = "") -> list[list[str]]:
    """The rows of some settings, whose keys begin with a prefix."""
    return [
        [f"`{prefix}{each.key}`", each.kind.replace("|", "/"), each.default, _escaped(each.help), _link(each.cls)]
        for each in settings
    ]


def _escaped(text: str) -> str:
    """A text that Markdown shows as it is: `<unk>` is no HTML."""
    return text.replace("<", r"\<")


def _link(cls: type) -> str:
    module = cls.__module__.removeprefix("course_lib.").replace(".", "/")
    return f"[`{cls.__name__}`](../{module}.py)"

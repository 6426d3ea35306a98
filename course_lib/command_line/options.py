"""The settings that -c, --set and a verb's options choose, their help text, and --profile and --quiet."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from course_lib.errors import QUIET, UsageError, notify
from course_lib.language.words import tr
from course_lib.settings import config, profiles

Settings = TypeVar("Settings")


@contextmanager
def environment(profile: str | None, quiet: bool = False) -> Iterator[None]:
    """Set what --profile and --quiet say in the block, also for the processes that it starts."""
    before = dict(os.environ)
    try:
        if profile:
            profiles.file(profile)
            os.environ[profiles.VARIABLE] = profile
            profiles.make_absolute()
        if quiet:
            os.environ[QUIET] = "1"
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def settings(
    cls: type[Settings],
    section: str,
    file: Path | None,
    overrides: Sequence[str] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of a verb, and print those that differ from the defaults if profiles have them.

    `file` is the YAML file or profile that -c names. Without it, the defaults hold whatever the current profile, which
    is for the course products. --set (`overrides`) is applied to them, then options (`changes`).
    """
    if (named := profiles.named(file)) and not section:
        raise UsageError(f"-c {file}: a profile has no settings of this verb; allowed: a YAML file")
    if named:
        chosen = config.section(section, cls, overrides or (), named)
    else:
        chosen = config.load(cls, file, overrides or ()) if file else config.build(cls, {}, overrides or ())
    if given := {key: value for key, value in (changes or {}).items() if value is not None}:
        chosen = config.build(cls, config.to_dict(chosen) | given)
    if section and (changed := config.changed(chosen)):
        values = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changed.items())
        notify(tr("settings: {values}; all others are the defaults", values=values))
    return chosen


def epilog(cls: type[Any], options: Collection[str] = ()) -> str:
    """Return help text that lists the settings that are not options themselves, with type, default and unit."""
    rows = [row for row in config.describe(cls) if row[0] not in options]
    lines = [f"{key} ({kind}, default {default}): {text}" for key, kind, default, text in rows]
    return "\n\n".join(["Settings (in the YAML of -c, or by --set):", *lines]) if rows else ""

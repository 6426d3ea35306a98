"""Commands for profiles: `course profile show` and `course new`."""

import os
import shlex
from collections.abc import Sequence
from math import floor, inf, log10
from pathlib import Path
from typing import Annotated, Any

from course_lib.command_line.output import Shown
from course_lib.files import human_size
from course_lib.language.columns import padded
from course_lib.language.words import mark, tr
from course_lib.settings import profiles

# Units of time: how many are in an hour, how they are written, and from how many on the next unit is used.
UNITS = (
    (3600, mark("{number} s"), 90),
    (60, mark("{number} min"), 90),
    (1, mark("{number} h"), 48),
    (1 / 24, mark("{number} days"), 700),
    (1 / 8766, mark("{number} years"), inf),
)


def show(name: Annotated[str | None, "a profile's name or path; default: COURSE_PROFILE"] = None) -> object:
    """Print what a profile sets, what it downloads, and the estimated hours and disk space on this machine."""
    from course_lib.paths import root
    from course_lib.settings import config, yaml_values

    if name is not None:
        profiles.file(name)
        os.environ[profiles.VARIABLE] = name
    path, sections = profiles.file(), config.sections()
    from course_lib.command_line import costs

    loaded, stages = list(costs.downloads()), costs.stages()
    nested: dict[str, Any] = {}
    for section, values in sections.items():
        chapter, _, inner = section.partition(".")
        nested.setdefault(chapter, {})[inner] = values
    lines = [
        tr("profile {name}: {path}", name=profiles.name(), path=path),
        tr("products: {folder}", folder=root()) + "\n",
        yaml_values.dump(nested) + tr("# All other settings are the defaults that `course VERB --help` lists.") + "\n",
        tr("downloads:") if loaded else tr("downloads: none"),
    ]
    for each in loaded:
        size = tr("unknown") if each.size is None else human_size(each.size)
        lines.append(f"{padded(size, '>10')}  {each.what} ({each.license})")
    estimates = tr("estimates for {machine}; the hours may be wrong by a factor of 3:", machine=costs.machine())
    lines += ["", estimates]
    hours, disk = sum(stage.hours for stage in stages), sum(stage.disk for stage in stages)
    rows = [(tr("chapter {number}", number=stage.chapter), stage.hours, stage.disk, stage.what) for stage in stages]
    rows.append((tr("all"), hours, disk, tr("not counted: the other notebooks' own cells, minutes each")))
    for name, took, space, what in rows:
        lines.append(f"{padded(name, '<9')}{padded(duration(took), '>10')}{human_size(space):>10}  {what}")
    content = {"profile": profiles.name(), "sections": sections, "downloads": loaded, "stages": stages}
    return Shown(content, "\n".join(lines))


def new(
    folder: Annotated[Path, "the new folder; the profile gets its name"],
    texts: Annotated[
        Sequence[Path], "copied into FOLDER/texts: .txt or .jsonl, also .gz, .bz2, .xz; may be added later"
    ] = (),
    *,
    like: Annotated[str, "the bundled profile that the new profile extends"] = profiles.BUNDLED[0],
) -> None:
    """Create a profile for your own texts, so that the course runs on them."""
    from course_lib.command_line.new_profile import create

    created = create(folder, texts or [], like)
    if texts:
        message = (
            mark(
                "{profile}: {documents:,} documents, {characters:,} characters; {short:,} of them too short, see "
                "filters.min_chars there"
            )
            if created.short
            else mark("{profile}: {documents:,} documents, {characters:,} characters")
        )
        sizes = {"documents": created.documents, "characters": created.characters}
        sizes |= {"short": created.short} if created.short else {}
        print(tr(message, profile=created.profile, **sizes))
    else:
        print(tr("{profile}: put .txt or .jsonl files into {folder}", profile=created.profile, folder=folder / "texts"))
    path = shlex.quote(str(created.profile.absolute()))
    print(tr("Next: export COURSE_PROFILE={path}; course profile show; course run all", path=path))


def duration(hours: float) -> str:
    """Return hours as text with two significant digits, in the unit that suits them."""
    factor, message, _ = next(each for each in UNITS if hours * each[0] < each[2])
    value = hours * factor
    digits = max(0, 1 - floor(log10(max(value, 1))))
    return tr(message, number=f"{round(value, 1 - floor(log10(max(value, 1)))):,.{digits}f}")

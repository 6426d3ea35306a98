"""Commands for profiles: `course profile show` and `course new`."""

import shlex
import shutil
from math import inf
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from course_lib.command_line.command import environment
from course_lib.command_line.options import path
from course_lib.command_line.output import Shown
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, human_size
from course_lib.language.columns import padded
from course_lib.language.words import tr, tr_noop
from course_lib.settings import profiles

# Units of time: how many are in an hour, how they are written, and from how many on the next unit is used.
UNITS = (
    (3600, tr_noop("{number} s"), 90),
    (60, tr_noop("{number} min"), 90),
    (1, tr_noop("{number} h"), 48),
    (1 / 24, tr_noop("{number} days"), inf),
)
# GPTSAN's settings for texts with a large vocabulary, in a profile that extends `tiny`.
GPTSAN_OF_TEXTS = """\
gptsan:
  recipe: {base: gptsan-tiny-text.yaml}
  vocabulary: {size: 4000}
  classes: {num_context: 240}
"""


def show(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="a profile's name or path; default: COURSE_PROFILE")
    ] = None,
) -> object:
    """Print what a profile sets, what it downloads, and the estimated hours and disk space on this machine."""
    from course_lib.command_line import costs
    from course_lib.paths import root
    from course_lib.settings import config, yaml_values

    with environment(name):
        sections, downloads, stages = config.sections(profiles.profile_file()), costs.downloads(), costs.stages()
        lines = [tr("profile {name}: {path}", name=profiles.current_name(), path=profiles.profile_file())]
        lines += [tr("products: {folder}", folder=root()) + "\n"]
    nested: dict[str, Any] = {}
    for section, values in sections.items():
        chapter, _, inner = section.partition(".")
        nested.setdefault(chapter, {})[inner] = values
    lines.append(
        yaml_values.dump(nested) + tr("# All other settings are the defaults that `course COMMAND --help` lists.")
    )
    lines.append("\n" + (tr("downloads:") if downloads else tr("downloads: none")))
    for each in downloads:
        size = tr("unknown") if each["size"] is None else human_size(each["size"])
        lines.append(f"{padded(size, '>10')}  {each['what']} ({each['license']})")
    lines.append(
        "\n" + tr("estimates for {machine}; the hours may be wrong by a factor of 3:", machine=costs.machine())
    )
    rows = [(tr("chapter {number}", number=stage.chapter), *stage[1:]) for stage in stages]
    hours, disk = sum(stage.hours for stage in stages), sum(stage.disk for stage in stages)
    rows.append((tr("all"), hours, disk, tr("not counted: the notebooks' own cells, minutes each")))
    for title, took, space, what in rows:
        lines.append(f"{padded(title, '<9')}{padded(duration(took), '>10')}{human_size(space):>10}  {what}")
    content = {"sections": sections, "downloads": downloads, "stages": stages}
    return Shown(content, "\n".join(lines))


def new(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="the new folder; the profile gets its name", parser=path)],
    texts: Annotated[
        list[Path] | None,
        Argument(metavar="TEXT", help=".txt or .jsonl, also .gz, .bz2, .xz; copied into FOLDER/texts", parser=path),
    ] = None,
    *,
    like: Annotated[str, Option("--like", help="the bundled profile that the new profile extends")] = profiles.BUNDLED[
        0
    ],
) -> None:
    """Create a profile for your own texts, so that the course runs on them."""
    from course_lib.corpus.config import FilterConfig
    from course_lib.corpus.products import require_text
    from course_lib.documents import read_texts

    name, shortest = folder.absolute().name, FilterConfig().min_chars
    if like not in profiles.BUNDLED:
        raise UsageError(f"--like: {like!r} is not a bundled profile; allowed: {', '.join(profiles.BUNDLED)}")
    if folder.exists() or name in profiles.BUNDLED:
        raise UsageError(f"{folder}: exists, or is the name of a bundled profile; choose another name")
    given = texts or []
    by_name = {each.name: each for each in given}
    if same := [each.name for each in given if by_name[each.name] is not each]:
        raise UsageError(f"{same[0]}: two texts have the same name; rename one")
    lengths: list[int] = []
    for each in given:
        require_text(each)
        found = [len("".join(text.split())) for text in read_texts(each)]
        if not any(found):
            raise CourseError(f"{each}: no document in it, or only white space")
        lengths += found
    chosen = profiles.read_yaml(profiles.profile_file(like))
    gpt2, gptsan = chosen["pretrain"]["recipe"]["config"], ""
    if chosen["corpus"]["sources"].get("world"):
        # Its runs are for the few words of the small world.
        gpt2, gptsan = "gpt2-tiny-text.yaml", GPTSAN_OF_TEXTS
    values = {"like": like, "shortest": shortest, "config": gpt2, "gptsan": gptsan}
    with atomic_folder(folder) as temporary:
        (temporary / "texts").mkdir()
        for each in given:
            shutil.copyfile(each, temporary / "texts" / each.name)
        for template, target in (("profile.yaml", f"{name}.yaml"), ("gpt2.yaml", "gpt2.yaml")):
            text = (profiles.CONFIGS / "new" / template).read_text(encoding="utf8")
            (temporary / target).write_text(text.format(**values), encoding="utf8")
    profile, short = folder / f"{name}.yaml", sum(length < shortest for length in lengths)
    if given:
        sizes = {"documents": len(lengths), "characters": sum(lengths), "short": short}
        message = tr_noop("{profile}: {documents:,} documents, {characters:,} characters")
        too_short = tr_noop("; {short:,} of them too short, see filters.min_chars there")
        print(tr(message, profile=profile, **sizes) + (tr(too_short, **sizes) if short else ""))
    else:
        print(tr("{profile}: put .txt or .jsonl files into {folder}", profile=profile, folder=folder / "texts"))
    message = tr_noop("Next: export COURSE_PROFILE={path}; course profile show; course run all")
    print(tr(message, path=shlex.quote(str(profile.absolute()))))


def duration(hours: float) -> str:
    """Return hours as text, in the unit that suits them."""
    factor, message, _ = next(each for each in UNITS if hours * each[0] < each[2])
    value = hours * factor
    return tr(message, number=f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}")

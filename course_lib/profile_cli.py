"""Commands for profiles: `course profile show` and `course new`."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib import profiles


def show(
    profile: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="a profile's name or path; default: COURSE_PROFILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """Print what a profile sets, what it downloads, and the estimated hours and disk space on this machine."""
    from course_lib import config, yaml_values
    from course_lib.paths import root

    if profile is not None:
        os.environ[profiles.VARIABLE] = profile
    path, sections = profiles.file(), config.sections()
    from course_lib import profile_costs as costs

    loaded, stages = list(costs.downloads()), costs.stages()
    if as_json:
        content: dict[str, Any] = {"profile": profiles.name(), "sections": sections}
        content |= {"downloads": [asdict(each) for each in loaded], "stages": [asdict(each) for each in stages]}
        print(json.dumps(content, ensure_ascii=False, indent=1))
        return
    print(f"profile {profiles.name()}: {_short(path)}; products in {_short(root())}\n")
    nested: dict[str, Any] = {}
    for name, values in sections.items():
        chapter, _, inner = name.partition(".")
        nested.setdefault(chapter, {})[inner] = values
    print(yaml_values.dump(nested) + "# All other settings are the defaults that `course VERB --help` lists.\n")
    print("downloads:" if loaded else "downloads: none")
    for each in loaded:
        size = "unknown" if each.size is None else f"{each.size / 1e9:.1f} GB"
        print(f"{size:>10}  {each.what} ({each.license})")
    print(f"\nestimates for this machine ({costs.machine()}):\nchapter       hours  disk, GB")
    hours, disk = sum(stage.hours for stage in stages), sum(stage.disk for stage in stages)
    rows = [(str(stage.chapter), stage.hours, stage.disk, stage.what) for stage in stages]
    for number, took, space, what in [*rows, ("all", hours, disk, "and minutes for the notebooks' own cells")]:
        print(f"{number:>7}{_duration(took):>12}{space / 1e9:>10.1f}  {what}")


def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="the new folder; its name becomes the profile's")],
    texts: Annotated[
        list[Path] | None, typer.Argument(metavar="[TEXT]...", help=".txt or .jsonl, plain or compressed; copied")
    ] = None,
    like: Annotated[str, typer.Option("--like", metavar="NAME", help="the profile that it extends")] = "tiny",
) -> None:
    """Create a profile for texts of one's own, with which the whole course then runs."""
    from course_lib.new_profile import create

    created = create(folder, texts or [], like)
    what = f"{created.documents:,} documents, {created.characters:,} characters"
    print(f"{created.profile}: {what if texts else f'put .txt or .jsonl files into {folder}/texts'}")
    print(f"Next: export COURSE_PROFILE={created.profile}; course profile show; course run all")


def _duration(hours: float) -> str:
    """Return hours as text; from 10,000 hours on, as years."""
    return f"{hours:,.1f}" if hours < 10_000 else f"{hours / 8766:,.0f} years"


def _short(path: Path) -> str:
    """Return a path relative to the current folder if it is in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

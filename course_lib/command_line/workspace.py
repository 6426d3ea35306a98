"""Commands that apply to all chapters: run, status, clean, cache and doctor."""

import os
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from course_lib.command_line.options import Note, output, path
from course_lib.command_line.output import Shown
from course_lib.command_line.profile import duration
from course_lib.errors import UsageError
from course_lib.files import human_size
from course_lib.language.columns import aligned
from course_lib.language.words import tr, tr_noop
from course_lib.settings import profiles
from course_lib.workspace import archive, chapters, cleaning
from course_lib.workspace import products as workspace

# The states of products.
STATES = (tr_noop("fresh"), tr_noop("stale"), tr_noop("missing"))
ChapterName = Annotated[str, Argument(metavar="CHAPTER", help="a chapter's number or name, or all")]


def run(
    chapter: ChapterName = "all",
    *,
    notebooks: Annotated[bool, Option("--notebooks", help="also execute the notebooks, into the workspace")] = False,
    from_cache: Annotated[
        Path | None,
        Option("--from-cache", help="archive of `course cache pack`; what is needed is unpacked first", parser=path),
    ] = None,
) -> None:
    """Build what the notebooks of a chapter need: corpora, tokenizers, models. Fresh products are not rebuilt."""
    chosen = chapters.select(chapter)
    by_chapter = {}
    for each in chosen:
        executed = each.executed() if notebooks else []
        by_chapter[each.number] = [*each.products(), *executed]
    if from_cache is not None:
        wanted = workspace.with_inputs(chain.from_iterable(by_chapter.values()))
        unpacked, left = archive.unpack(wanted, from_cache)
        sizes = {"number": len(unpacked), "size": human_size(sum(unpacked.values()))}
        print(tr("{source}: {number} products unpacked, {size}", source=from_cache, **sizes), flush=True)
        _print_left(tr("not unpacked"), left)
    for selected in chosen:
        products = by_chapter[selected.number]
        started = time.perf_counter()
        fresh = all(state.kind == "fresh" for state in workspace.states(products).values())
        for product in products:
            product.path()
        names = (f"{p.name.split('/')[1]} {human_size(workspace.size(p.name))}" for p in products)
        seconds = time.perf_counter() - started
        took = tr("up to date") if fresh else tr("{seconds:.0f} s", seconds=seconds)
        print(f"{selected.number} {tr(selected.title)}: {took}; {', '.join(names)}", flush=True)
    if chapter == "all":
        message = tr_noop("Next: `make lab` opens the notebooks; the products are under {folder}")
        print(tr(message, folder=os.path.relpath(workspace.root())))


def cache_pack(target: Annotated[Path, output("path of the archive, a zip file"), Note.PRODUCT]) -> None:
    """Pack the finished products of the current profile into an archive for `course run N --from-cache FILE`."""
    packed, left = archive.pack(chapters.products(), target)
    _print_left(tr("left out"), left)
    sizes = {"size": human_size(sum(packed.values())), "packed": human_size(target.stat().st_size)}
    print(tr("{output}: {number} products, {size} in {packed}", output=target, number=len(packed), **sizes))


def _print_left(title: str, left: dict[str, str]) -> None:
    if left:
        print(f"{title}: " + ", ".join(f"{name} ({reason})" for name, reason in left.items()), flush=True)


def status() -> object:
    """List the workspace's products: fresh, stale (with the reason) or missing, with size, age and counts."""
    states = workspace.states(products := chapters.products())
    rows, head = [], [tr("product"), tr("state"), tr("size"), tr("built"), tr("details")]
    for product in products:
        state, manifest = states[product.name], product.manifest() or {}
        row = {
            "product": product.name,
            "state": state.kind,
            "reason": state.reason,
            "counts": manifest.get("counts", {}),
        }
        rows.append(row | {"bytes": workspace.size(product.name), "built": manifest.get("built", "")})
    lines = []
    for row in rows:
        counts = (_count(name, value) for name, value in row["counts"].items() if not isinstance(value, dict))
        details = row["reason"] or ", ".join(counts)
        lines.append([row["product"], tr(row["state"]), human_size(row["bytes"]), row["built"], details])
    title = tr("profile {name}, products in {folder}", name=profiles.current_name(), folder=workspace.root())
    return Shown(rows, "\n".join([title, *aligned([head, *lines], right=[2])]))


# How products name what they count; their manifests keep the English.
_COUNTED = (
    tr_noop("bits per character"),
    tr_noop("bytes"),
    tr_noop("characters"),
    tr_noop("documents"),
    tr_noop("documents in"),
    tr_noop("entries"),
    tr_noop("examples"),
    tr_noop("files"),
    tr_noop("frozen tensors"),
    tr_noop("held-out loss"),
    tr_noop("kept parameters"),
    tr_noop("layers"),
    tr_noop("lines"),
    tr_noop("lines left out"),
    tr_noop("new parameters"),
    tr_noop("out"),
    tr_noop("seed"),
    tr_noop("steps"),
    tr_noop("tasks"),
    tr_noop("texts"),
    tr_noop("tokens"),
    tr_noop("trained tensors"),
    tr_noop("unanalysed"),
    tr_noop("vocabulary"),
    tr_noop("words"),
)


def _count(name: str, value: object) -> str:
    if isinstance(value, float):
        value = f"{value:.4f}"
    elif isinstance(value, list):
        value = " ".join(value)
    return f"{tr(name.replace('_', ' '))} {value}"


def clean(
    chapter: ChapterName,
    *,
    runs: Annotated[bool, Option("--runs", help="also the training runs, with their checkpoints")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="only show what would be removed")] = False,
    yes: Annotated[bool, Option("--yes", help="do not ask")] = False,
) -> None:
    """Remove the products of a chapter, or of all chapters, from the current profile's workspace, after a question."""
    found = cleaning.removal([selected.package for selected in chapters.select(chapter)], runs)
    for name, (size, seconds) in found.parts.items():
        print(f"{name:<28}{human_size(size):>9}  {duration(seconds / 3600):>8}")
    for entry in found.stays:
        entry_size = human_size(sum(each.stat().st_size for each in cleaning.files_in(entry)))
        is_runs = entry.name == cleaning.RUNS
        why = tr("training runs; --runs removes them") if is_runs else tr("not written by the course")
        print(tr("stays: {path}, {size} ({why})", path=entry.relative_to(workspace.root()), size=entry_size, why=why))
    for entry in found.used:
        print(tr("stays: {path} (a running command uses it)", path=entry.relative_to(workspace.root())))
    space = sum(size for size, _ in found.parts.values())
    hours = sum(seconds for _, seconds in found.parts.values()) / 3600
    sizes = {"size": human_size(space), "time": duration(hours), "folder": os.path.relpath(workspace.root())}
    if dry_run or not found.paths:
        print(tr("would remove {size} from {folder}; it took {time} to build", **sizes))
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError(tr("clean: no terminal to ask on; --yes removes this, --dry-run only shows it"))
    if yes or typer.confirm(tr("Remove {size} from {folder}? It took {time} to build.", **sizes)):
        found.remove()
        print(tr("removed {size} from {folder}", **sizes))


def doctor() -> object:
    """Show which parts this machine has, what fails without each missing one, and how to get it."""
    from course_lib import doctor as checks

    results = checks.examine()
    return Shown(checks.report(results), checks.table(results))

"""Commands that apply to all chapters: run, status, clean, cache, doctor and notebooks."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.command_line.output import Shown
from course_lib.command_line.profile import duration
from course_lib.errors import UsageError
from course_lib.files import human_size
from course_lib.language.columns import padded
from course_lib.language.words import mark, tr
from course_lib.settings import profiles

# The states of products, and the names of the counts in their manifests, which `status` shows.
STATES = (mark("fresh"), mark("stale"), mark("missing"))
COUNTS = (
    mark("documents in"), mark("out"), mark("characters"), mark("documents"), mark("lines"), mark("words"),
    mark("unanalysed"), mark("cells"), mark("vocabulary"), mark("lines left out"), mark("entries"), mark("texts"),
    mark("examples"), mark("tokens"), mark("layers"), mark("new parameters"), mark("kept parameters"),
    mark("trained tensors"), mark("frozen tensors"), mark("distinct"), mark("steps"), mark("held-out loss"),
    mark("files"), mark("bytes"), mark("tasks"),
)  # fmt: skip
ChapterName = Annotated[str, "a chapter's number or name, or all"]


def run(
    chapter: ChapterName = "all",
    *,
    from_cache: Annotated[Path | None, "archive of `course cache pack`; what is needed is unpacked first"] = None,
) -> None:
    """Run the notebooks of a chapter into the workspace and build what they need. Fresh products are not rebuilt."""
    from course_lib.workspace import chapters
    from course_lib.workspace import products as workspace

    products = chapters.products()
    if from_cache is not None:
        _unpack(from_cache, chapter)
    for selected in chapters.select(chapter):
        started = time.perf_counter()
        own = [product for product in products if product.name.startswith(f"{selected.package}/")]
        fresh = all(state.kind == "fresh" for state in workspace.states(own).values())
        for product in own:
            product.path()
        sizes = ", ".join(f"{p.name.split('/')[1]} {human_size(workspace.size(p.name))}" for p in own)
        seconds = time.perf_counter() - started
        took = tr("up to date") if fresh else tr("{seconds:.0f} s", seconds=seconds)
        print(f"{selected.number} {tr(selected.title)}: {took}; {sizes}", flush=True)
    message = mark("Next: `make lab` opens the notebooks; the executed copies and products are under {folder}")
    print(tr(message, folder=os.path.relpath(workspace.root())))


def _unpack(source: Path, chapter: str) -> None:
    """Unpack the products of a chapter and their inputs, and print what was unpacked and what was not."""
    from course_lib.workspace import archive, chapters
    from course_lib.workspace import products as workspace

    packages = {selected.package for selected in chapters.select(chapter)}
    own = [product for product in chapters.products() if product.name.partition("/")[0] in packages]
    started = time.perf_counter()
    done = archive.unpack(workspace.with_inputs(own), source)
    seconds = time.perf_counter() - started
    sizes = {"number": len(done.products), "size": human_size(done.size), "seconds": seconds}
    print(tr("{source}: {number} products unpacked, {size} in {seconds:.1f} s", source=source, **sizes), flush=True)
    if done.kept:
        kept = ", ".join(f"{name} ({reason})" for name, reason in done.kept.items())
        print(tr("not unpacked: {products}", products=kept), flush=True)
    if done.absent:
        print(tr("not in the archive: {products}", products=", ".join(done.absent)), flush=True)


def cache_pack(target: Annotated[Path, "path of the archive, a zip file"]) -> None:
    """Pack the finished products of the current profile into an archive for `course run N --from-cache FILE`."""
    from course_lib.workspace import archive, chapters

    started = time.perf_counter()
    done = archive.pack(chapters.products(), target)
    if done.kept:
        left_out = ", ".join(f"{name} ({tr(state)})" for name, state in done.kept.items())
        print(tr("left out: {products}", products=left_out))
    sizes = {"size": human_size(done.size), "packed": human_size(target.stat().st_size)}
    numbers = {"number": len(done.products), "seconds": time.perf_counter() - started}
    message = mark("{output}: {number} products, {size} in {packed}; {seconds:.0f} s")
    print(tr(message, output=target, **sizes, **numbers))


def status() -> object:
    """List the workspace's products: fresh, stale (with the reason) or missing, with size, age and counts."""
    from course_lib.workspace import chapters
    from course_lib.workspace import products as workspace

    rows, products = [], chapters.products()
    for product, state in zip(products, workspace.states(products).values(), strict=True):
        row: dict[str, Any] = {"product": product.name, "state": state.kind, "reason": state.reason}
        manifest = product.manifest() or {}
        row |= {"bytes": workspace.size(product.name), "built": manifest.get("built", "")}
        rows.append(row | {"counts": manifest.get("counts", {})})
    lines = [tr("profile {name}, products in {folder}", name=profiles.name(), folder=workspace.root())]
    head = padded(tr("product"), "<28") + padded(tr("state"), "<9") + padded(tr("size"), ">9")
    lines.append(head + "  " + padded(tr("built"), "<26") + tr("details"))
    for row in rows:
        kind, size = padded(tr(row["state"]), "<9"), human_size(row["bytes"])
        # The name of a source or setting is not translated.
        counts = {tr(name) if name in COUNTS else name: value for name, value in row["counts"].items()}
        details = ", ".join(f"{name} {value}" for name, value in counts.items() if not isinstance(value, dict))
        lines.append(f"{row['product']:<28}{kind}{size:>9}  {row['built']:<26}{row['reason'] or details}".rstrip())
    return Shown(rows, "\n".join(lines))


def clean(
    chapter: ChapterName,
    *,
    runs: Annotated[bool, "also the training runs, with their checkpoints"] = False,
    dry_run: Annotated[bool, "only show what would be removed"] = False,
    yes: Annotated[bool, "do not ask"] = False,
) -> None:
    """Remove the products of a chapter, or of all chapters, from the current profile's workspace, after a question."""
    from course_lib.workspace import chapters, cleaning
    from course_lib.workspace import products as workspace

    found = cleaning.removal([selected.package for selected in chapters.select(chapter)], runs)
    folder = os.path.relpath(workspace.root())
    for name, (space, seconds) in found.parts.items():
        print(f"{name:<28}{human_size(space):>9}  {duration(seconds / 3600):>8}")
    for path in found.kept:
        size = human_size(sum(each.stat().st_size for each in cleaning.files_in(path)))
        is_runs = path.name == cleaning.RUNS
        why = tr("training runs; --runs removes them") if is_runs else tr("not written by the course")
        print(tr("stays: {path}, {size} ({why})", path=os.path.relpath(path, workspace.root()), size=size, why=why))
    sizes = {"size": human_size(found.size), "time": duration(found.seconds / 3600), "folder": folder}
    if dry_run or not found.paths:
        print(tr("would remove {size} from {folder}; it took {time} to build", **sizes))
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError("clean: no terminal to ask on; --yes removes this, --dry-run only shows it")
    if yes or typer.confirm(tr("Remove {size} from {folder}? It took {time} to build.", **sizes)):
        found.remove()
        print(tr("removed {size} from {folder}", **sizes))


def doctor() -> object:
    """Show which parts this machine has, what fails without each missing one, and how to get it."""
    from course_lib import doctor as checks

    results = checks.examine()
    return Shown(checks.report(results), checks.table(results))

"""The verbs of the `course` command. Each calls the library function that the notebooks use, too.

cli.py runs the verbs, and turns errors into one line and an exit code.
"""

import importlib
import json
import os
import time
from typing import Annotated

import typer

from course_lib import memory_cli, options
from course_lib.files import human_size

app = options.group(
    "From raw Japanese text to a served language model. COURSE_PROFILE selects the products' profile (default tiny)."
)
for chapter in ("corpus", "japanese", "subword", "pretrain", "gptsan", "prefix", "serving"):
    importlib.import_module(f"course_lib.{chapter}.cli").register(app)
memory_cli.register(app)

ChapterName = Annotated[str, typer.Argument(metavar="[CHAPTER|all]", help="a chapter's number or name")]


@app.command()
def run(chapter: ChapterName = "all") -> None:
    """Run the notebooks of a chapter into the workspace and build what they need. Fresh products are not rebuilt."""
    from course_lib import chapters, workspace

    products = chapters.products()
    for selected in chapters.select(chapter):
        started = time.perf_counter()
        own = [product for product in products if product.name.startswith(f"{selected.package}/")]
        fresh = {state.kind for state in workspace.states(own).values()} <= {"fresh"}
        for product in own:
            product.path()
        sizes = ", ".join(f"{p.name.split('/')[1]} {human_size(workspace.size(p.name))}" for p in own)
        took = "up to date" if fresh else f"{time.perf_counter() - started:.0f} s"
        print(f"{selected.number} {selected.title}: {took}; {sizes}", flush=True)
    executed = workspace.root()
    print(f"Next: `make lab` opens the notebooks; the executed copies and products are under {_short(executed)}")


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False) -> None:
    """List the workspace's products: fresh, stale (with the reason) or missing, with size, age and counts."""
    from course_lib import chapters, workspace

    rows, products = [], chapters.products()
    for product, state in zip(products, workspace.states(products).values(), strict=True):
        manifest = product.manifest() or {}
        rows.append({"product": product.name, "state": state.kind, "reason": state.reason,
                     "bytes": workspace.size(product.name),
                     "built": manifest.get("built", ""), "counts": manifest.get("counts", {})})  # fmt: skip
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    print(f"{'product':<28}{'state':<9}{'size':>9}  {'built':<26}details")
    for row in rows:
        details = row["reason"] or ", ".join(f"{k} {v}" for k, v in row["counts"].items() if not isinstance(v, dict))
        print(
            f"{row['product']:<28}{row['state']:<9}{human_size(row['bytes']):>9}  {row['built']:<26}{details}".rstrip()
        )


@app.command()
def clean(chapter: ChapterName = "all") -> None:
    """Remove the products of a chapter, or of all chapters, from the current profile's workspace."""
    from course_lib import chapters, workspace

    freed = workspace.clean([selected.package for selected in chapters.select(chapter)])
    print(f"removed {human_size(freed)} from {_short(workspace.root())}")


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="machine-readable, for a bug report")] = False) -> None:
    """Show which parts this machine has, what fails without each missing one, and how to get it."""
    from course_lib import doctor as checks

    results = checks.examine()
    print(json.dumps(checks.report(results), ensure_ascii=False, indent=1) if as_json else checks.table(results))


@app.command("notebooks")
def tend_notebooks(
    execute: Annotated[
        bool, typer.Option("--execute", help="also run each notebook in place and store its outputs")
    ] = False,
) -> None:
    """For authors: update each notebook's badge and set-up cell from pyproject.toml, tidy it, export figures."""
    from course_lib import notebooks
    from course_lib.paths import NOTEBOOKS

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        changed = notebooks.refresh(path)
        if execute:
            notebooks.execute(path, path)
        notebooks.export_images(path)
        print(f"{path.name}: {'rewritten' if changed else 'unchanged'}{', executed' if execute else ''}")


def _short(path: os.PathLike[str]) -> str:
    return os.path.relpath(path)

"""Build the site: `python -m course_site [-o FOLDER]`, or `make site`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from course_lib.language.words import SOURCE, VARIABLE
from course_lib.paths import REPOSITORY

from course_authors import editions
from course_site.editions import JAPANESE


def main(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR")] = REPOSITORY / "workspace/site",
    jobs: Annotated[str, typer.Option("-j", "--jobs", help="processes, or auto: one per core")] = "auto",
) -> None:
    """Build the English edition into DIR/html and the Japanese one into DIR/html/ja.

    Warnings are errors, in the Japanese edition as long as it is not behind the English one.
    """
    tree = output / JAPANESE
    for path, content in editions.stored(JAPANESE, tree):
        # Sphinx builds again what has been written again.
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    # The solutions of the instructor's kit include the code of the exercises.
    code = tree / "course_lib/exercises"
    if not code.exists():
        code.parent.mkdir(exist_ok=True)
        code.symlink_to(REPOSITORY / "course_lib/exercises")
    built = [
        _sphinx(SOURCE, REPOSITORY, output / "doctrees", output / "html", jobs),
        _sphinx(
            JAPANESE, tree, output / f"doctrees-{JAPANESE}", output / "html" / JAPANESE, jobs,
            strict=not editions.behind(JAPANESE),
        ),
    ]  # fmt: skip
    if any(built):
        sys.exit(1)


def _sphinx(language: str, source: Path, doctrees: Path, html: Path, jobs: str, strict: bool = True) -> int:
    """Return the exit code of Sphinx. If `strict`, a warning, such as of a link that leads nowhere, is an error."""
    options = ["-q", *(["-W", "--keep-going"] if strict else []), "-j", jobs, "-c", REPOSITORY / "docs", "-d", doctrees]
    command = [sys.executable, "-m", "sphinx", *map(str, [*options, source, html])]
    return subprocess.run(command, check=False, env=os.environ | {VARIABLE: language}).returncode


typer.run(main)

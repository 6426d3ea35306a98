"""Make a release and publish nothing: `python -m course_release [--check] [--doi DOI]`, or `make release`."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from course_lib import files
from course_lib.errors import CourseError
from course_lib.paths import REPOSITORY

from course_release import archives, packages, texts

SUMS, NOTES = "SHA256SUMS", "NOTES.md"
T = TypeVar("T")


def main(
    check: Annotated[bool, typer.Option("--check", help="run `make check` first")] = False,
    doi: Annotated[str, typer.Option(metavar="DOI", help="write it into CITATION.cff, and make no release")] = "",
) -> None:
    """Make packages and archives in workspace/release/VERSION, whole or not at all, after checking them.

    The packages are built from the last commit, uploaded to an index on this machine and installed from there; each
    archive is downloaded from a server on this machine and unpacked by the installed course. Nothing is published.
    """
    try:
        if doi:
            texts.write_doi(doi)
            print(f"CITATION.cff: doi: {doi}; commit it")
        else:
            _release(check)
    except CourseError as error:
        sys.exit(f"release: {error}")


def _release(check: bool) -> None:
    release = texts.read()
    packages.require_clean_tree()
    print(f"{release.version} of {release.date}: the tree is clean, and the texts name this version")
    if check:
        subprocess.run(["make", "check"], cwd=REPOSITORY, check=True)
    else:
        print("make test and make rehearse are expected to have passed on this commit; they are not run here")
    os.environ["COURSE_PROFILE"] = archives.PROFILE
    target = REPOSITORY / "workspace/release" / release.version
    with tempfile.TemporaryDirectory() as temporary, files.atomic_folder(target, ours=True) as folder:
        scratch = Path(temporary)
        built = _step("packages", lambda: packages.build(scratch, folder))
        course = _step("upload and installation", lambda: packages.rehearse(scratch, built, release.version))
        _step("archives", lambda: archives.pack(folder))
        sums = {path.name: files.sha256(path) for path in sorted(folder.iterdir())}
        (folder / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()), encoding="utf8")
        _step("a start at each chapter", lambda: archives.rehearse(folder, scratch / "learner", course))
        (folder / NOTES).write_text(release.notes, encoding="utf8")
    sizes = ", ".join(f"{path.name} {files.human_size(path.stat().st_size)}" for path in sorted(target.iterdir()))
    print(f"{target.relative_to(REPOSITORY)}: {sizes}; nothing was published")


def _step(name: str, step: Callable[[], T]) -> T:
    """Return the result of a step, after printing its name and its seconds."""
    print(f"{name} …", flush=True)
    started = time.perf_counter()
    result = step()
    print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    return result


typer.run(main)

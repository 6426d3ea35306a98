"""A full rehearsal of Colab with any Python: `python -m tests.colab.rehearse --python PATH --torch torch==2.13.0 -o REPORT`.

It makes a virtual environment with Colab's pins and a stand-in for `google.colab`, runs the real set-up cell with the
wheel of this repository in place of its address, compares the versions before and after, and then runs the notebooks
from another folder. It uses the package index and takes 20 minutes on two cores, 3 without torch. record.md holds the
latest reports.

Without --torch, torch is installed by name only: pip has nothing to fetch, and only the notebooks that need no torch run.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from course_lib import paths

from tests.colab import runtime
from tests.colab.runtime import KEPT, Runtime

# By name, because importing the chapters needs packages that Colab does not have before the set-up cell.
NOTEBOOKS = {path.stem: path for path in sorted(paths.NOTEBOOKS.glob("*.ipynb"))}
# What runs without torch: whole notebooks, and one up to the cell that imports torch.
WITHOUT_TORCH = ("01_corpus_prep", "02_normalize_and_segment")
PARTLY = ("03_tokenizers", "course_lib.evaluation.causal")


def colab_like(python: str, torch: str | None, folder: Path, say: Callable[[str], None]) -> Runtime:
    """Makes an environment with Colab's pins. `torch` is the requirement of a build for this Python, None for its name only."""
    colab = Runtime.create(folder / "venv", python)
    version = colab.run("import platform; print(platform.python_version())").strip()
    file = runtime.constraints(version.rpartition(".")[0])
    wanted = runtime.pins(file)
    started = time.monotonic()
    colab_torch = wanted.pop("torch")
    colab.pip("install", "--quiet", f"pip=={wanted.pop('pip')}")
    exact = [torch] if torch else []
    if torch:
        colab.pip("install", "--quiet", torch)
        # torch 2.13 needs 77 or newer.
        wanted["setuptools"] = "80.9.0"
    else:
        colab.add_name_only("torch", colab_torch)
    # torch once more, so that pip fails where a pin forbids this build, and does not fetch gigabytes of another.
    colab.pip("install", "--quiet", *exact, *(f"{name}=={pin}" for name, pin in wanted.items()))
    say(f"{file.name}: {len(wanted)} pins installed in {time.monotonic() - started:.0f} s")
    return colab


def set_up(colab: Runtime, work: Path, say: Callable[[str], None]) -> None:
    """Runs the set-up cell in `work`. Raises AssertionError if it changes a version of KEPT or adds a line to `pip check`."""
    before, conflicts = colab.versions(), colab.conflicts()
    wheel = runtime.wheel(work / "dist", colab.python)
    runtime.setup_only(NOTEBOOKS["01_corpus_prep"], wheel, work / "setup.ipynb")
    seconds = colab.execute(work / "setup.ipynb", work / "workspace")
    assert "-packages/course_lib/" in (printed := runtime.text(work / "setup.ipynb")), printed
    after = colab.versions()
    say(f"set-up cell: {seconds:.0f} s, {len(after.keys() - before.keys())} packages added")
    changed = [f"{name} {before[name]} → {after.get(name)}" for name in before if after.get(name) != before[name]]
    say(f"changed: {', '.join(changed) or 'none'}")
    say("unchanged: " + ", ".join(f"{name} {before[name]}" for name in KEPT if after[name] == before[name]))
    assert not [name for name in KEPT if after[name] != before[name]], changed
    new = [line for line in colab.conflicts() if line not in conflicts]
    say(f"pip check: {len(conflicts)} lines before, {len(new)} more after{''.join(f'; {line}' for line in new)}")
    assert not new, new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", help="the interpreter to rehearse with; default: this one, as it is (in Colab's image)"
    )
    parser.add_argument("--torch", help="requirement of a torch build for this Python, such as torch==2.13.0")
    parser.add_argument("--notebooks", nargs="*", help="default: all, or without --torch those that need no torch")
    parser.add_argument("--folder", type=Path, help="where to work; kept. Default: a temporary folder")
    parser.add_argument("-o", "--output", type=Path, help="also write the report here")
    arguments = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(f"- {line}\n")
        print(line, flush=True)
        if arguments.output:
            arguments.output.write_text("".join(lines), encoding="utf8")

    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.folder or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        if arguments.python:
            colab = colab_like(arguments.python, arguments.torch, work, say)
        else:
            colab = Runtime(Path(sys.executable))
        say(colab.run("import platform; print('Python', platform.python_version(), platform.platform())").strip())
        set_up(colab, work, say)
        with_torch = arguments.torch or not arguments.python
        for name in arguments.notebooks or (NOTEBOOKS if with_torch else WITHOUT_TORCH):
            shutil.copy(NOTEBOOKS[name], work)
            say(f"{name}: {colab.execute(work / f'{name}.ipynb', work / 'workspace'):.0f} s")
        if not with_torch:
            name, needs_torch = PARTLY
            cells = runtime.cut(NOTEBOOKS[name], work / f"{name}.ipynb", needs_torch)
            seconds = colab.execute(work / f"{name}.ipynb", work / "workspace")
            say(f"{name}, the {cells} cells before torch: {seconds:.0f} s")


if __name__ == "__main__":
    main()

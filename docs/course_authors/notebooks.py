"""The common cells of notebooks (badge and set-up), made from pyproject.toml, and the figures for the README."""

import re
import tomllib
from base64 import b64decode
from pathlib import Path

import nbformat
from course_lib.files import atomic_write
from course_lib.language.words import VARIABLE
from course_lib.notebooks.execution import tidy
from course_lib.paths import REPOSITORY

# tags of cells with a special role
SETUP_TAG, BADGE_TAG, README_TAG = "setup", "badge", "readme"
# the course's version of what the learner writes: the site folds it by this tag, JupyterLab and Colab by its metadata
FOLDED_TAG = "hide-input"
SETUP = """\
try:
    import course_lib
except ImportError:  # {colab}
    source = "git+{address}"
    %pip install -q "japanese-lm-course[notebook,train,serve] @ {{source}}"
    import course_lib
"""
# The comment in it, by language; others have the English one.
COLAB = {
    "": "on Colab: 1–2 minutes (builds jumandic, deepspeed); its torch and numpy stay",
    "ja": "Colabでは1〜2分（jumandicとdeepspeedをビルド。Colabのtorchとnumpyはそのまま）",
}
# What the set-up cell of an edition does first.
LANGUAGE = f"""\
import os

os.environ["{VARIABLE}"] = "{{language}}"
"""


def address() -> str:
    """Return the repository URL, which is stored only in pyproject.toml (`Repository` under [project.urls])."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf8"))["project"]
    return str(project["urls"]["Repository"]).rstrip("/")


# The beginning of an absolute link to a file of the repository; such a link works on Colab, too.
ON_GITHUB = address()
ABSOLUTE = f"{ON_GITHUB}/blob/main/"


def badge(name: str) -> str:
    """Return the Colab badge for a notebook as Markdown."""
    slug = re.sub(r"^https://github\.com/", "", address())
    link = f"https://colab.research.google.com/github/{slug}/blob/main/notebooks/{name}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})"


def setup(language: str = "") -> str:
    """Return the set-up cell of a notebook, in English or in another language."""
    return (LANGUAGE.format(language=language) if language else "") + SETUP.format(
        address=address(), colab=COLAB.get(language, COLAB[""])
    ).strip()


def refresh(path: Path) -> bool:
    """Update a notebook's badge and setup cell from pyproject.toml and tidy the notebook. Return whether it changed."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    wanted = {BADGE_TAG: badge(path.name), SETUP_TAG: setup()}
    before = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    tidy(notebook)
    for cell in notebook.cells:
        for tag, text in wanted.items():
            if tag in cell.metadata.get("tags", []):
                cell.source = text
    changed = bool(nbformat.writes(notebook) != before)  # type: ignore[no-untyped-call]
    if changed:
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    return changed


def export_images(path: Path) -> None:
    """Write the figure of the executed cell tagged `readme`, if there is one, as images/<notebook>.png beside it."""
    for cell in nbformat.read(path, as_version=4).cells:  # type: ignore[no-untyped-call]
        if README_TAG not in cell.metadata.get("tags", []):
            continue
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                with atomic_write(path.parent / "images" / f"{path.stem}.png") as file:
                    file.write(b64decode(output.data["image/png"]))

"""Paths to the checkout, the bundled data and the workspace for the current profile."""

import os
from pathlib import Path

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.settings import profiles

# the root of the checkout; site-packages if the course is installed from a wheel
REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = REPOSITORY / "notebooks"


def root() -> Path:
    """Return the workspace folder for the current profile.

    Its parent is $COURSE_WORKSPACE, else workspace/ in the checkout or, without a checkout, in the current folder.
    """
    checkout = (REPOSITORY / "pyproject.toml").exists()
    workspace = os.environ.get("COURSE_WORKSPACE") or (REPOSITORY if checkout else Path.cwd()) / "workspace"
    return Path(workspace).absolute() / profiles.current_name()


def data(name: str) -> Path:
    """Return the path to a file in the bundled data/ folder. Raises UsageError if there is no such file."""
    folders = [REPOSITORY / "data", Path(__file__).parent / "data"]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    allowed = sorted(path.name for folder in folders if folder.is_dir() for path in folder.iterdir())
    raise UsageError(
        tr("bundled data {name!r} does not exist; allowed: {allowed}", name=name, allowed=", ".join(allowed))
    )

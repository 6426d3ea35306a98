"""Where things are: the checkout, the bundled data, the workspace of the current profile."""

import os
from pathlib import Path

from course_lib import config
from course_lib.errors import UsageError

REPOSITORY = Path(__file__).parent.parent  # a checkout; in an installed wheel, site-packages
NOTEBOOKS = REPOSITORY / "notebooks"


def root() -> Path:
    """The workspace of the current profile: $COURSE_WORKSPACE, else workspace/ of the checkout or the current folder."""
    checkout = (REPOSITORY / "pyproject.toml").exists()
    place = os.environ.get("COURSE_WORKSPACE") or (REPOSITORY if checkout else Path.cwd()) / "workspace"
    return Path(place).absolute() / config.profile()


def data(name: str) -> Path:
    """A file of the bundled data/, in a checkout or in an installed wheel. Raises UsageError if there is none such."""
    places = [REPOSITORY / "data", Path(__file__).parent / "data"]
    for place in places:
        if (place / name).is_file():
            return place / name
    allowed = sorted(path.name for place in places if place.is_dir() for path in place.iterdir())
    raise UsageError(f"bundled data {name!r} does not exist; allowed: {', '.join(allowed)}")

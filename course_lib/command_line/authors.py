"""The commands for authors. Their code is beside the docs, which only a checkout has."""

import sys

from course_lib.errors import CourseError
from course_lib.paths import REPOSITORY

DOCS = REPOSITORY / "docs"
if not (DOCS / "course_authors").is_dir():
    raise CourseError(f"{DOCS}: not found; catalogues and notebooks are written in a checkout")
if str(DOCS) not in sys.path:
    sys.path.append(str(DOCS))

from course_authors.commands import notebooks as notebooks  # noqa: E402
from course_authors.commands import words as words  # noqa: E402

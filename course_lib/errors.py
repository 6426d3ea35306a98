"""The errors that a user can cause, shown as one line, and remarks. A bug in the course shows its traceback."""

import os
import sys

# Environment variable that is set by --quiet, which shows no progress bars and no remarks.
QUIET = "COURSE_QUIET"


class CourseError(Exception):
    """Error for bad data or a missing part: one line, exit code 1. Earlier outputs are left unchanged."""

    exit_code = 1


class UsageError(CourseError):
    """Error for a wrong option, key or value: one line that says what is allowed, exit code 2. Nothing is written."""

    exit_code = 2


def one_line(error: BaseException) -> str:
    """Return the message of an exception as one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]


def notify(text: str) -> None:
    """Print a line to standard error, unless --quiet is given."""
    if not os.environ.get(QUIET):
        print(text, file=sys.stderr)

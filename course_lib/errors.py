"""The two errors that a user can cause. Any other exception is a bug in the course and keeps its traceback."""


class CourseError(Exception):
    """Bad data or a missing part. The message is one line, the exit code 1; earlier outputs are unchanged."""

    exit_code = 1


class UsageError(CourseError):
    """A wrong option, key or value. Nothing has been written.

    The message is one line that names the key, the value and what is allowed. The exit code is 2.
    """

    exit_code = 2


def one_line(error: Exception) -> str:
    """The message of an exception as one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]

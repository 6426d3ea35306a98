"""The errors that a user can cause. They are shown as one line; a bug in the course shows its traceback."""


class CourseError(Exception):
    """Error for bad data or a missing part. Earlier outputs are left unchanged.

    The message is one line, and the exit code is 1.
    """

    exit_code = 1


class UsageError(CourseError):
    """Error for a wrong option, key or value, raised before anything is written.

    The message is one line that names the key, the value and what is allowed. The exit code is 2.
    """

    exit_code = 2


def one_line(error: Exception) -> str:
    """Return the message of an exception as one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]

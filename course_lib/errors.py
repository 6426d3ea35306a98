"""The two errors a user can cause. Everything else is a bug in the course and keeps its traceback."""


class CourseError(Exception):
    """Bad data or a missing part: one clear line, exit code 1. Earlier products stay as they were."""

    exit_code = 1


class UsageError(CourseError):
    """A wrong option, key or value: one line naming the key, the value and what is allowed, exit code 2. Nothing is written."""

    exit_code = 2

"""Exercises: `check(n, answer)`, `hint(n)`, `solution(n)` for each chapter, one file per chapter.

A notebook writes `from course_lib.exercises import corpus as exercises`. An unanswered exercise (`...` or None) prints that it waits
and fails nothing. This module knows how to ask and answer; what is right stands in the chapters' files.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import dedent
from types import EllipsisType
from typing import Any

from course_lib.errors import UsageError


@dataclass(frozen=True)
class Exercise:
    """One exercise. `check` returns None when the answer is right, else what to look at again."""

    task: str
    check: Callable[[Any], str | None]
    hints: tuple[str, ...]
    solution: Any  # the answer itself: a value, or a function whose source is shown
    explanation: str


class Chapter:
    """The exercises of one chapter, numbered from 1."""

    def __init__(self, *exercises: Exercise) -> None:
        self.exercises = exercises
        self._hints_given: dict[int, int] = {}

    def _get(self, number: int) -> Exercise:
        if not isinstance(number, int) or not 1 <= number <= len(self.exercises):
            raise UsageError(f"exercise {number!r} does not exist; allowed: 1 to {len(self.exercises)}")
        return self.exercises[number - 1]

    def check(self, number: int, answer: Any = None) -> None:
        """Prints whether `answer` is right, and if not, what to look at again. Never raises for a wrong answer."""
        exercise = self._get(number)
        if answer is None or isinstance(answer, EllipsisType):
            print(f"Exercise {number} waits for your answer: {exercise.task}")
            return
        try:
            problem = exercise.check(answer)
        except Exception as error:  # the learner's own function may raise anything
            problem = f"your answer raised {type(error).__name__}: {error}"
        print(f"Exercise {number}: " + ("right." if problem is None else f"not yet. {problem}"))

    def hint(self, number: int) -> None:
        """Prints the next hint; after the last one, the last again."""
        exercise = self._get(number)
        given = min(self._hints_given.get(number, 0), len(exercise.hints) - 1)
        self._hints_given[number] = given + 1
        print(f"Hint {given + 1} of {len(exercise.hints)}: {exercise.hints[given]}")

    def solution(self, number: int) -> None:
        """Prints the solution and why it is one."""
        exercise = self._get(number)
        shown = dedent(inspect.getsource(exercise.solution)) if callable(exercise.solution) else repr(exercise.solution)
        print(f"{shown.rstrip()}\n# {exercise.explanation}")


def run_cases(function: Any, cases: Sequence[tuple[tuple[Any, ...], Any, str]]) -> str | None:
    """Calls a learner's function on (arguments, wanted, what to think of); the first case it gets wrong, explained, or None."""
    if not callable(function):
        return f"expected a function, got {type(function).__name__}: write the name without brackets behind it."
    for arguments, wanted, reason in cases:
        given = function(*arguments)
        close = isinstance(wanted, float) and isinstance(given, float | int) and abs(given - wanted) < 1e-9
        if given != wanted and not close:
            shown = ", ".join(map(repr, arguments))
            right = f"{wanted:.3f}" if isinstance(wanted, float) else repr(wanted)
            return f"For {shown} expected {right}, got {given!r}: {reason}."
    return None


def plain(answer: Any) -> Any:
    """The function with lists for what it gives: right in tuples or arrays is right."""

    def lists(given: Any) -> Any:
        if hasattr(given, "tolist"):  # numpy, torch
            return given.tolist()
        return [lists(each) for each in given] if isinstance(given, list | tuple) else given

    return (lambda *arguments: lists(answer(*arguments))) if callable(answer) else answer

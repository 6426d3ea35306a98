"""The exercises in the notebooks: `check(n, answer)`, `hint(n)` and `solution(n)`, with one module per chapter.

A notebook runs `from course_lib.exercises import corpus as exercises`. If an exercise is unanswered (`...` or None),
`check` prints the task and raises no error. This module contains the classes and helpers. The chapter modules contain
the tasks, checks and solutions.
"""

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from textwrap import dedent
from types import EllipsisType
from typing import Any

from course_lib.errors import UsageError

# call arguments, expected result, and advice for a learner whose result is different
Case = tuple[tuple[Any, ...], Any, str]


@dataclass(frozen=True)
class Exercise:
    """An exercise: its task, check, hints and solution."""

    task: str
    # test cases for a function, or a check that returns None for a right answer and otherwise says what is wrong
    check: Sequence[Case] | Callable[[Any], str | None]
    hints: tuple[str, ...]  # from vague to precise
    solution: Any  # a right answer: a value, or a function whose source is printed
    explanation: str  # printed after the solution


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
        """Print whether `answer` is right and, if not, what is wrong. A wrong answer raises no exception."""
        exercise = self._get(number)
        if answer is None or isinstance(answer, EllipsisType):
            print(f"Exercise {number} waits for your answer: {exercise.task}")
            return
        try:
            problem = exercise.check(answer) if callable(exercise.check) else run_cases(answer, exercise.check)
        # The learner's function may raise any exception.
        except Exception as error:
            problem = f"your answer raised {type(error).__name__}: {error}"
        print(f"Exercise {number}: " + ("right." if problem is None else f"not yet. {problem}"))

    def hint(self, number: int) -> None:
        """Print the next hint, or the last one again if there are no more."""
        exercise = self._get(number)
        index = min(self._hints_given.get(number, 0), len(exercise.hints) - 1)
        self._hints_given[number] = index + 1
        print(f"Hint {index + 1} of {len(exercise.hints)}: {exercise.hints[index]}")

    def solution(self, number: int) -> None:
        """Print the solution and its explanation."""
        exercise = self._get(number)
        shown = dedent(inspect.getsource(exercise.solution)) if callable(exercise.solution) else repr(exercise.solution)
        print(f"{shown.rstrip()}\n# {exercise.explanation}")


def run_cases(function: Any, cases: Sequence[Case]) -> str | None:
    """Call a learner's function on test cases and describe the first failure; return None if all pass.

    If a float is expected, an error of up to 1e-6 is accepted. Tuples, lists, NumPy arrays and torch tensors with
    the same content are considered equal.
    """
    if not callable(function):
        return f"expected a function, got {type(function).__name__}: write its name without parentheses."
    for arguments, wanted, reason in cases:
        # A learner's function may change a list in place.
        result = _lists(function(*(deepcopy(each) if isinstance(each, list) else each for each in arguments)))
        if isinstance(wanted, tuple) and isinstance(result, list):
            result = tuple(result)
        if not _same(result, wanted):
            shown = ", ".join(map(repr, arguments))
            right = f"{wanted:.3f}" if isinstance(wanted, float) else repr(wanted)
            return f"For {shown} expected {right}, got {result!r}: {reason}."
    return None


def _same(result: Any, wanted: Any) -> bool:
    """Return whether a result is the expected one; floats may differ by 1e-6."""
    if isinstance(wanted, list | tuple):
        return type(result) is type(wanted) and len(result) == len(wanted) and all(map(_same, result, wanted))
    if isinstance(wanted, float):
        return isinstance(result, float | int) and abs(result - wanted) <= 1e-6
    return bool(result == wanted)


def _lists(result: Any) -> Any:
    """Convert tuples, ranges, NumPy arrays and torch tensors to lists."""
    if hasattr(result, "tolist"):
        return result.tolist()
    return [_lists(each) for each in result] if isinstance(result, list | tuple | range) else result

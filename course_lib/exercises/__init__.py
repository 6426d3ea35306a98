"""The exercises in the notebooks: `check(n, answer)`, `hint(n)` and `solution(n)`, with one module per chapter.

A notebook runs `from course_lib.exercises import corpus as exercises`. If an exercise is unanswered (`...` or None),
`check` prints the task and raises no error. This module contains the classes. The chapter modules contain the tasks,
checks and solutions, `answers` the comparison of results, and `display` the form in Jupyter.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import dedent
from types import EllipsisType
from typing import Any

from course_lib.errors import UsageError
from course_lib.exercises.answers import Case, plain, run_cases
from course_lib.exercises.display import GREEN, RED, badge, folded_hints, folded_solution, show

__all__ = ["Case", "Chapter", "Exercise", "run_cases"]


@dataclass(frozen=True)
class Exercise:
    """An exercise: its task, check, hints and solution."""

    task: str
    # test cases for a function, or a check that returns None for a right answer and otherwise says what is wrong;
    # a check gets values as `plain` returns them, and functions unchanged
    check: Sequence[Case] | Callable[[Any], str | None]
    hints: tuple[str, ...]  # from vague to precise
    solution: Any  # a right answer: a value, or a function whose source is printed
    explanation: str  # printed after the solution

    def problem(self, answer: Any) -> str | None:
        """Return what is wrong with an answer, or None if it is right. Raises nothing."""
        try:
            return self.check(plain(answer)) if callable(self.check) else run_cases(answer, self.check)
        # The learner's function may raise any exception.
        except Exception as error:
            return f"your answer raised {type(error).__name__}: {error}"

    def code(self) -> str:
        """Return the solution as Python code."""
        code = inspect.getsource(self.solution) if callable(self.solution) else repr(self.solution)
        return dedent(code).rstrip()


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
        """Show whether `answer` is right and, if not, what is wrong. A wrong answer raises no exception."""
        exercise = self._get(number)
        if answer is None or isinstance(answer, EllipsisType):
            print(f"Exercise {number} waits for your answer: {exercise.task}")
            return
        problem = exercise.problem(answer)
        if problem is None:
            more = folded_solution(exercise.code(), exercise.explanation)
            show(f"Exercise {number}: right.", f"<p>{badge('✓ right', GREEN)} Exercise {number}</p>{more}")
            return
        html = f"<p>{badge('✗ not yet', RED)} Exercise {number}. {escape(problem)}</p>{folded_hints(exercise.hints)}"
        show(f"Exercise {number}: not yet. {problem}", html)

    def hint(self, number: int) -> None:
        """Show the next hint, or the last one again if there are no more."""
        exercise = self._get(number)
        index = min(self._hints_given.get(number, 0), len(exercise.hints) - 1)
        self._hints_given[number] = index + 1
        text = f"Hint {index + 1} of {len(exercise.hints)}: {exercise.hints[index]}"
        show(text, folded_hints(exercise.hints, index, is_open=True))

    def solution(self, number: int) -> None:
        """Show the solution and its explanation; in Jupyter they are folded."""
        exercise = self._get(number)
        code, explanation = exercise.code(), exercise.explanation
        show(f"{code}\n# {explanation}", folded_solution(code, explanation))

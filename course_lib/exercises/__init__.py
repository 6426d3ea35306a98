"""The exercises in the notebooks: `check`, `choose`, `hint` and `solution`, with one module per chapter.

A notebook runs `from course_lib.exercises import corpus as exercises`. If an exercise is unanswered, `check` prints the
task. `choose` gives later cells the learner's function, or the course's where that is not right yet. `answers` compares
results, `from_notebook` reads solutions from the folded cells of the notebooks, their only source, and `display` shows
a verdict in Jupyter.
"""

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any, TypeVar

from course_lib import paths
from course_lib.errors import UsageError
from course_lib.exercises.answers import Case, judge_cases, plain
from course_lib.exercises.display import hints_html, show, solution_html, verdict_html
from course_lib.language.words import language, tr

__all__ = ["SEE_FOLDED_CELL", "Case", "Chapter", "Code", "Exercise", "from_notebook"]

T = TypeVar("T")
# The explanation of a solution whose code the learner finds in the notebook, or its first sentence.
SEE_FOLDED_CELL = "The folded cell below the exercise has the code."


class Code(str):
    """A solution that is Python code, printed as it is; it may need names of the notebook."""


def from_notebook(notebook: str, name: str) -> Code:
    """Return the code of the folded cell that defines a function or class, without its title and its last statement.

    The notebook is that in the reader's language. Without a checkout, such as on Colab, no notebook is at hand: then
    the code is the name alone.
    """
    file = f"{notebook}.ipynb"
    for path in (paths.NOTEBOOKS / language() / file, paths.NOTEBOOKS / file):
        if path.is_file():
            cells = json.loads(path.read_text(encoding="utf8"))["cells"]
            for source in ("".join(cell["source"]) for cell in cells):
                if re.search(rf"^(def|class) {name}\b", source, re.MULTILINE):
                    _title, _, code = source.partition("\n")
                    return Code(re.sub(r"\n+\w+ = exercises\.choose\(.*\)$", "", code))
    return Code(name)


def unanswered(answer: Any) -> bool:
    """Return whether an answer is None, `...`, a function whose body is `...`, or a class with such a method."""
    if isinstance(answer, type):
        return any(_is_blank(each) for each in vars(answer).values())
    return answer is None or answer is ... or _is_blank(answer)


def _is_blank(function: Any) -> bool:
    """Return whether the body of a function is nothing but a docstring and `...`."""
    if not inspect.isfunction(function):
        return False
    try:
        definition = ast.parse(dedent(inspect.getsource(function))).body[0]
    # The source is not at hand, or it is a part of a statement, in which a lambda stands.
    except (OSError, SyntaxError):
        return False
    if not isinstance(definition, ast.FunctionDef):
        return False
    return all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in definition.body)


@dataclass(frozen=True)
class Exercise:
    """An exercise: its task, check, hints and solution."""

    task: str
    # Cases for `judge_cases`, or a function that takes a plain answer and returns what is wrong with it, or None.
    check: Sequence[Case] | Callable[[Any], str | None]
    hints: tuple[str, ...]  # from vague to precise
    # A right answer: a value, a function whose source is printed, or `Code`, such as that of a folded cell.
    solution: Any
    explanation: str  # printed after the solution

    def problem(self, answer: Any) -> str | None:
        """Return what is wrong with an answer, or None if it is right. Raises nothing."""
        try:
            return self.check(plain(answer)) if callable(self.check) else judge_cases(answer, self.check)
        # An answer of another form, or the learner's function in it, may raise any exception.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return tr("this answer cannot be judged ({reason}). The task: {task}", reason=reason, task=tr(self.task))

    def code(self) -> str:
        """Return the solution as Python code."""
        if isinstance(self.solution, Code):
            return self.solution
        if callable(self.solution):
            return dedent(inspect.getsource(self.solution)).rstrip()
        return repr(self.solution)

    def texts(self) -> Iterator[str]:
        """Yield the texts of the exercise, for the catalogues."""
        yield self.task
        yield from () if callable(self.check) else (advice for *_, advice in self.check)
        yield from self.hints
        yield self.explanation


class Chapter:
    """The exercises of one chapter, numbered from 1."""

    def __init__(self, *exercises: Exercise) -> None:
        self.exercises = exercises
        self._hints_given: dict[int, int] = {}

    def _get(self, number: int) -> Exercise:
        if not isinstance(number, int) or not 1 <= number <= len(self.exercises):
            last = len(self.exercises)
            raise UsageError(tr("exercise {number!r} does not exist; allowed: 1 to {last}", number=number, last=last))
        return self.exercises[number - 1]

    def check(self, number: int, answer: Any = None) -> None:
        """Show whether `answer` is right and, if not, what is wrong. A wrong answer raises no exception."""
        exercise = self._get(number)
        if unanswered(answer):
            print(tr("Exercise {number} waits for your answer: {task}", number=number, task=tr(exercise.task)))
            return
        problem, title = exercise.problem(answer), tr("Exercise {number}", number=number)
        if problem is None:
            html = verdict_html(True, title) + solution_html(exercise.code(), tr(exercise.explanation))
            show(tr("Exercise {number}: right.", number=number), html)
        else:
            html = verdict_html(False, f"{title}. {problem}") + hints_html(self._hints(number))
            show(tr("Exercise {number}: not yet. {problem}", number=number, problem=problem), html)

    def choose(self, number: int, yours: T, ours: T) -> T:
        """Return the learner's function or class if exercise `number` accepts it, otherwise the course's."""
        return ours if unanswered(yours) or self._get(number).problem(yours) else yours

    def hint(self, number: int) -> None:
        """Show the next hint, or the last one again if there are no more."""
        hints = self._hints(number)
        index = min(self._hints_given.get(number, 0), len(hints) - 1)
        self._hints_given[number] = index + 1
        text = tr("Hint {number} of {all}: {hint}", number=index + 1, all=len(hints), hint=hints[index])
        show(text, hints_html(hints, index, " open"))

    def solution(self, number: int) -> None:
        """Show the solution and its explanation; in Jupyter they are folded."""
        exercise = self._get(number)
        code, explanation = exercise.code(), tr(exercise.explanation)
        show(f"{code}\n# {explanation}", solution_html(code, explanation))

    def _hints(self, number: int) -> list[str]:
        return [tr(hint) for hint in self._get(number).hints]

"""The framework of the exercises: what check, hint and solution print, and what they show in Jupyter."""

import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from course_lib import paths
from course_lib.errors import UsageError
from course_lib.exercises import Chapter, Exercise, from_notebook, unanswered
from course_lib.exercises.answers import judge_cases, plain, same
from nbclient import NotebookClient


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


def is_four(answer: Any) -> str | None:
    return None if answer == 4 else "two and two."


FOUR = Exercise("What is 2 + 2?", is_four, ("Count.", "Use your fingers.", "It is even."), 4, "two twos are four")
TWICE = Exercise("Write double.", (((2,), 4, "add"), ((0,), 0, "nothing")), ("Add it to itself.",), double, "2·n")


@pytest.fixture
def chapter() -> Chapter:
    return Chapter(FOUR, TWICE)


def empty(number: int) -> int:  # type: ignore[empty-body]
    """Twice the number."""
    ...


class Blank:
    """A class with a method to write."""

    def __init__(self) -> None:
        self.number = 4

    @torch.no_grad()
    def step(self) -> None:
        """Return nothing."""
        ...


def only_documented(number: int) -> int:  # type: ignore[empty-body]
    """Twice the number."""


@pytest.mark.parametrize("answer", [None, ..., empty, only_documented, Blank])
def test_an_unanswered_exercise_waits(chapter: Chapter, capsys: pytest.CaptureFixture[str], answer: Any) -> None:
    chapter.check(1, answer)
    assert capsys.readouterr().out == "Exercise 1 waits for your answer: What is 2 + 2?\n"


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        (1, 4, "right."),
        (1, 0, "not yet. two and two."),  # falsy, yet an answer
        (2, lambda n: torch.tensor(2 * n), "right."),
        (2, lambda n: n + 2, "not yet. For 0 expected 0, got 2: nothing."),
        (2, 4, "not yet. expected a function, got int"),
        (2, lambda n: 4 if n else 1 / n, "not yet. For 0 expected 0, but your function raised ZeroDivisionError"),
        (2, lambda n: print(end=""), "not yet. For 2 expected 4, got None: end the function with return"),
        (2, lambda n: map(abs, [n]), "not yet. For 2 expected 4, got a map: make a list"),
    ],
)
def test_an_answer_is_judged_and_never_raises(
    chapter: Chapter, capsys: pytest.CaptureFixture[str], number: int, answer: Any, said: str
) -> None:
    chapter.check(number, answer)
    out = capsys.readouterr().out
    assert out.startswith(f"Exercise {number}: {said}") and out.count("\n") == 1


def test_later_cells_get_the_learners_function_once_it_is_right(chapter: Chapter) -> None:
    def right(number: int) -> int:
        return number + number

    assert chapter.choose(2, right, double) is right
    assert chapter.choose(2, empty, double) is double
    assert chapter.choose(2, lambda number: number + 2, double) is double


def test_an_ellipsis_left_below_the_learners_code_does_no_harm() -> None:
    def left(numbers: list[int]) -> None:
        numbers.append(2)
        ...

    assert not unanswered(left)


def test_a_solution_is_the_code_of_the_folded_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = str(from_notebook("03_tokenizers", "MineOurs"))
    assert code.startswith("import re\n") and code.endswith('.decode(errors="replace")')
    # The course was installed without a checkout.
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path / "notebooks")
    assert from_notebook("03_tokenizers", "MineOurs") == "MineOurs"


def test_hints_come_one_after_the_other_for_each_exercise(chapter: Chapter, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 1, 2, 1, 1):
        chapter.hint(number)
    shown = [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["Count.", "Use your fingers.", "Add it to itself.", "It is even.", "It is even."]


def test_the_solution_is_a_value_or_the_source_of_a_function(
    chapter: Chapter, capsys: pytest.CaptureFixture[str]
) -> None:
    chapter.solution(1)
    chapter.solution(2)
    shown = capsys.readouterr().out
    assert shown.startswith("4\n# two twos are four\ndef double(") and shown.endswith("    return 2 * number\n# 2·n\n")


@pytest.mark.parametrize("number", [3, "1"])
def test_an_unknown_number_is_refused_by_name(chapter: Chapter, number: Any) -> None:
    for ask in (chapter.check, chapter.hint, chapter.solution):
        with pytest.raises(UsageError, match=f"{number!r}.*1 to 2"):
            ask(number)


@pytest.mark.parametrize(
    ("answer", "converted"),
    [
        ((1, (2, [3])), [1, [2, [3]]]),
        (range(3), [0, 1, 2]),
        (np.array([np.array([1]), (2, np.int8(3))], dtype=object), [[1], [2, 3]]),
        (torch.tensor(2.0, requires_grad=True), 2.0),
        ((torch.tensor([1, 2]), np.bool_(True)), [[1, 2], True]),
        ({"loss": torch.tensor(0.25)}, {"loss": 0.25}),
    ],
)
def test_one_conversion_for_all_answers(answer: Any, converted: Any) -> None:
    assert repr(plain(answer)) == repr(converted)


@pytest.mark.parametrize(
    ("result", "expected", "equal"),
    [
        (15_572_000_064.0, 15_572_000_000, True),  # as a 32-bit float
        (13_184_319, 13_184_320, False),
        (float("nan"), 0.3, False),
        ([1, [2.0000001]], [1, [2]], True),
        ([1], [1, 2], False),
    ],
)
def test_integers_are_exact_and_floats_are_not(result: Any, expected: Any, equal: bool) -> None:
    assert same(result, expected) is equal


def test_functions_and_known_mistakes_are_named_and_arguments_stay_as_they_were() -> None:
    cases = [((["ab"], double), lambda texts, f: texts[0].upper(), "call str.upper")]

    def spoil(texts: list[str], f: Any) -> str:
        return texts.pop()

    for _ in range(2):
        assert judge_cases(spoil, cases) == "For ['ab'], double expected 'AB', got 'ab': call str.upper."


# what JupyterLab's sanitizer keeps in a notebook that is not trusted (@jupyterlab/apputils, sanitizer.ts)
KEPT = {"b", "p", "pre", "details", "summary"}
NOTEBOOK = """
from course_lib.exercises import japanese as exercises
exercises.check(4, ...)
def blank(marked): ...
exercises.check(4, blank)
exercises.check(4, lambda marked: "<b>")
exercises.check(4, exercises.CHAPTER.exercises[3].solution)
exercises.hint(4)
exercises.solution(4)
"""


def test_jupyter_shows_a_colored_verdict_and_other_front_ends_the_text() -> None:
    cells = [nbformat.v4.new_code_cell(line) for line in NOTEBOOK.strip().split("\n")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="python3", timeout=None).execute()
    _, waiting, _, blank, wrong, right, hint, solution = [cell.outputs for cell in cells]
    # Nothing is shown twice.
    assert [len(outputs) for outputs in (waiting, blank, wrong, right, hint, solution)] == [1] * 6
    assert all(outputs[0].text.startswith("Exercise 4 waits for your answer") for outputs in (waiting, blank))
    data = [outputs[0].data for outputs in (wrong, right, hint, solution)]
    assert data[0]["text/plain"].startswith("Exercise 4: not yet.")
    pages = [each["text/html"] for each in data]
    assert "got &#x27;&lt;b&gt;&#x27;" in pages[0] and "✓ right" in pages[1]
    # The second hint is folded inside the first one, and only an asked one is open.
    assert re.search(r"<details><summary>Hint 1 of 2</summary>.*<details><summary>Hint 2 of 2</summary>", pages[0])
    assert re.search(r"<details open><summary>Hint 1 of 2</summary>.*<details><summary>Hint 2", pages[2])
    assert re.search(r"<details><summary>Solution</summary><pre>def to_plain", pages[3])
    for html in pages:
        assert set(re.findall(r"<([a-z]+)", html)) <= KEPT
        assert set(re.findall(r"([\w-]+):#[0-9a-f]{6}", html)) <= {"color", "background-color"}

"""The framework of the exercises: what check, hint and solution print, and what they show in Jupyter."""

import re
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from course_lib.errors import UsageError
from course_lib.exercises import Chapter, Exercise, run_cases
from course_lib.exercises.answers import plain, same
from nbclient import NotebookClient


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


def is_four(answer: Any) -> str | None:
    return None if answer == 4 else "two and two."


FOUR = Exercise("What is 2 + 2?", is_four, ("Count.", "Use your fingers.", "It is even."), 4, "two twos are four")
TWICE = Exercise(
    "Write double.",
    lambda f: run_cases(f, [((2,), 4, "add"), ((0,), 0, "nothing")]),
    ("Add it to itself.",),
    double,
    "2·n",
)


@pytest.fixture
def chapter() -> Chapter:
    return Chapter(FOUR, TWICE)


@pytest.mark.parametrize("answer", [(), (None,), (...,)])
def test_an_unanswered_exercise_waits(
    chapter: Chapter, capsys: pytest.CaptureFixture[str], answer: tuple[Any, ...]
) -> None:
    chapter.check(1, *answer)
    assert capsys.readouterr().out == "Exercise 1 waits for your answer: What is 2 + 2?\n"


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        (1, 4, "right."),
        (1, 5, "not yet. two and two."),
        (1, 0, "not yet. two and two."),  # falsy, yet an answer
        (1, "", "not yet. two and two."),
        (2, double, "right."),
        (2, lambda n: n * n, "right."),
        (2, lambda n: n + 2, "not yet. For 0 expected 0, got 2: nothing."),
        (2, 4, "not yet. expected a function, got int: write its name without parentheses."),
        (2, lambda n: 1 / n, "not yet. For 2 expected 4, got 0.5: add."),
        (
            2,
            lambda n: 4 if n else 1 / n,
            "not yet. For 0 expected 0, but your function raised ZeroDivisionError (division by zero): nothing.",
        ),
        (2, lambda: 4, "not yet. For 2 expected 4, but your function raised TypeError (<lambda>() takes 0 pos"),
        (2, lambda n: int("x"), "not yet. For 2 expected 4, but your function raised ValueError (invalid literal"),
        (2, lambda n: None, "not yet. For 2 expected 4, got None: end the function with return and the result."),
        (2, lambda n: map(abs, [n]), "not yet. For 2 expected 4, got a map: make a list of it with list(…)."),
        (2, lambda n: torch.tensor([n]), "not yet. For 2 expected 4, got [2]: add."),
        (2, lambda n: np.float32(3 * n / 7), "not yet. For 2 expected 4, got 0.857143: add."),
    ],
)
def test_an_answer_is_judged_and_never_raises(
    chapter: Chapter, capsys: pytest.CaptureFixture[str], number: int, answer: Any, said: str
) -> None:
    chapter.check(number, answer)
    out = capsys.readouterr().out
    assert out.startswith(f"Exercise {number}: {said}")
    assert out.count("\n") == 1


def test_a_learner_who_interrupts_is_obeyed(chapter: Chapter) -> None:
    def endless(_number: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chapter.check(2, endless)


def test_hints_come_one_after_the_other_for_each_exercise(chapter: Chapter, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 1, 2, 1, 1, 2):
        chapter.hint(number)
    assert capsys.readouterr().out.splitlines() == [
        "Hint 1 of 3: Count.",
        "Hint 2 of 3: Use your fingers.",
        "Hint 1 of 1: Add it to itself.",
        "Hint 3 of 3: It is even.",
        "Hint 3 of 3: It is even.",
        "Hint 1 of 1: Add it to itself.",
    ]


def test_the_solution_is_a_value_or_the_source_of_a_function(
    chapter: Chapter, capsys: pytest.CaptureFixture[str]
) -> None:
    chapter.solution(1)
    assert capsys.readouterr().out == "4\n# two twos are four\n"
    chapter.solution(2)
    shown = capsys.readouterr().out
    assert shown == 'def double(number: int) -> int:\n    """Twice the number."""\n    return 2 * number\n# 2·n\n'
    scope: dict[str, Any] = {}
    exec(shown, scope)
    chapter.check(2, scope["double"])
    assert capsys.readouterr().out == "Exercise 2: right.\n"


@pytest.mark.parametrize("number", [0, 3, -1, "1", 1.0, None])
def test_an_unknown_number_is_refused_by_name(chapter: Chapter, number: Any) -> None:
    for ask in (chapter.check, chapter.hint, chapter.solution):
        with pytest.raises(UsageError, match=f"^exercise {number!r} does not exist; allowed: 1 to 2$"):
            ask(number)


def test_run_cases_forgives_rounding_only() -> None:
    def tell(found: Any) -> str | None:
        return run_cases(lambda: found, [((), 0.3, "near")])

    assert tell(0.1 + 0.2) is None
    assert tell(0.3001) == "For  expected 0.3, got 0.3001: near."
    assert tell(0.300002) == "For  expected 0.3, got 0.300002: near."
    assert tell("0.3") == "For  expected 0.3, got '0.3': near."
    assert tell(float("nan")) == "For  expected 0.3, got nan: near."


@pytest.mark.parametrize(
    ("answer", "converted"),
    [
        ((1, (2, [3])), [1, [2, [3]]]),
        (range(3), [0, 1, 2]),
        (np.array([[1.5], [2.5]]), [[1.5], [2.5]]),
        (np.array([np.array([1]), (2, np.int8(3))], dtype=object), [[1], [2, 3]]),
        (np.float32(0.5), 0.5),
        (np.str_("雨"), "雨"),
        (torch.tensor(2.0, requires_grad=True), 2.0),
        ((torch.tensor([1, 2]), np.bool_(True)), [[1, 2], True]),
        ({"loss": torch.tensor(0.25)}, {"loss": 0.25}),
        ("text", "text"),
        (np.ndarray, np.ndarray),
        (np.longdouble(2), np.longdouble(2)),
    ],
)
def test_one_conversion_for_all_answers(answer: Any, converted: Any) -> None:
    assert repr(plain(answer)) == repr(converted)


@pytest.mark.parametrize(
    ("result", "expected", "equal"),
    [
        (15_572_000_064.0, 15_572_000_000, True),  # as a 32-bit float
        (13_184_319, 13_184_320, False),
        (4.0, 4, True),
        (1, True, True),
        (1 + 2e-6, 1.0, False),
        ([1, [2.0000001]], [1, [2]], True),
        ([1], [1, 2], False),
        (1, [1], False),
        ("1", 1, False),
    ],
)
def test_integers_are_exact_and_floats_are_not(result: Any, expected: Any, equal: bool) -> None:
    assert same(result, expected) is equal


def test_functions_and_known_mistakes_are_named() -> None:
    cases = [(("ab", str.upper, double), "AB", "apply it", (("ab", "str.upper was not called"),))]
    assert run_cases(lambda text, f, g: text, cases) == (
        "For 'ab', str.upper, double expected 'AB', got 'ab': str.upper was not called."
    )
    assert run_cases(lambda text, f, g: "", cases) == "For 'ab', str.upper, double expected 'AB', got '': apply it."


def test_arguments_that_an_answer_changes_stay_as_they_were() -> None:
    def spoil(numbers: list[int], names: dict[str, int]) -> int:
        numbers.append(1)
        names.clear()
        return 0

    numbers, names = [1], {"a": 1}
    assert run_cases(spoil, [((numbers, names), 0, "")]) is None
    assert (numbers, names) == ([1], {"a": 1})


# what JupyterLab's sanitizer keeps in a notebook that is not trusted (@jupyterlab/apputils, sanitizer.ts)
KEPT = {"b", "p", "pre", "details", "summary"}
NOTEBOOK = """
from course_lib.exercises import japanese as exercises
exercises.check(3, ...)
exercises.check(3, lambda marked: "<b>")
exercises.check(3, exercises.CHAPTER.exercises[2].solution)
exercises.hint(3)
exercises.solution(3)
"""


def test_jupyter_shows_a_colored_verdict_and_other_front_ends_the_text() -> None:
    cells = [nbformat.v4.new_code_cell(line) for line in NOTEBOOK.strip().split("\n")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="python3", timeout=None).execute()
    _, waiting, wrong, right, hint, solution = [cell.outputs for cell in cells]
    # Nothing is shown twice.
    assert [len(outputs) for outputs in (waiting, wrong, right, hint, solution)] == [1] * 5
    assert waiting[0].text.startswith("Exercise 3 waits for your answer: write a function to_plain")
    data = [outputs[0].data for outputs in (wrong, right, hint, solution)]
    assert data[0]["text/plain"].startswith(
        "Exercise 3: not yet. For '早稲田 大学' expected '早稲田 大学', got '<b>': "
    )
    assert data[1]["text/plain"] == "Exercise 3: right."
    assert data[2]["text/plain"] == "Hint 1 of 2: Work word by word: marked.split(' ')."
    assert data[3]["text/plain"].startswith("def to_plain(marked: str)")
    wrong_html, right_html, hint_html, solution_html = (each["text/html"] for each in data)
    assert "✗ not yet" in wrong_html and "got &#x27;&lt;b&gt;&#x27;" in wrong_html
    assert "✓ right" in right_html and "✗" not in right_html
    # The second hint is folded inside the first one, and only an asked one is open.
    assert re.search(r"<details><summary>Hint 1 of 2</summary>.*<details><summary>Hint 2 of 2</summary>", wrong_html)
    assert re.search(r"<details open><summary>Hint 1 of 2</summary>.*<details><summary>Hint 2", hint_html)
    assert re.search(r"<details><summary>Solution</summary><pre>def to_plain", solution_html)
    for html in (wrong_html, right_html, hint_html, solution_html):
        assert set(re.findall(r"<([a-z]+)", html)) <= KEPT
        assert set(re.findall(r"([\w-]+):#[0-9a-f]{6}", html)) <= {"color", "background-color"}

"""The framework of the exercises: what check, hint and solution print."""

from typing import Any

import pytest
from course_lib.errors import UsageError
from course_lib.exercises import Chapter, Exercise, run_cases


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
        (2, lambda n: 4 if n else 1 / n, "not yet. your answer raised ZeroDivisionError: division by zero"),
        (2, lambda: 4, "not yet. your answer raised TypeError: "),
        (2, lambda n: int("x"), "not yet. your answer raised ValueError: "),
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
    assert tell(0.3001) == "For  expected 0.300, got 0.3001: near."
    assert tell("0.3") == "For  expected 0.300, got '0.3': near."

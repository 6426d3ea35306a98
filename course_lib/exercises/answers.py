"""Learners' answers: one conversion to plain Python values, one comparison, one loop over test cases."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from math import isclose
from numbers import Integral, Real
from typing import Any

from course_lib.language.words import tr

# For a function: the arguments of a call, and advice if the result is not the solution's. For a value: a wrong answer,
# or `...` for any, and advice for it.
Case = tuple[Any, str]
TOLERANCE = 1e-6


def plain(answer: Any) -> Any:
    """Convert tuples, ranges, NumPy arrays and scalars and torch tensors to lists and numbers, nested ones too."""
    # So neither NumPy nor torch is imported.
    if hasattr(answer, "tolist"):
        answer = answer.tolist()
    if isinstance(answer, list | tuple | range):
        return [plain(each) for each in answer]
    return {key: plain(value) for key, value in answer.items()} if isinstance(answer, dict) else answer


def same(result: Any, expected: Any) -> bool:
    """Return whether two plain values are equal: integers exactly, other numbers within 1e-6 (relative above 1)."""
    if isinstance(expected, list):
        return isinstance(result, list) and len(result) == len(expected) and all(map(same, result, expected))
    if isinstance(expected, Real) and isinstance(result, Real):
        exact = isinstance(expected, Integral) and isinstance(result, Integral)
        return bool(result == expected if exact else isclose(result, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE))
    return bool(result == expected)


def shown(value: Any) -> str:
    """Return a value as a message shows it: functions by name, floats with at most six decimals."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, float):
        return repr(round(value, 6))
    return str(value.__qualname__) if hasattr(value, "__qualname__") else repr(value)


def judge(answer: Any, solution: Any, cases: Sequence[Case]) -> str | None:
    """Return what is wrong with an answer that should be as the solution is, or None if it is right."""
    if not callable(solution):
        if same(answer := plain(answer), plain(solution)):
            return None
        advice = next(advice for wrong, advice in cases if wrong is ... or same(answer, plain(wrong)))
        return tr("{answer} is not right: {advice}.", answer=shown(answer), advice=tr(advice))
    if not callable(answer):
        kind = type(answer).__name__
        return tr("expected a function, got {kind}: write its name without parentheses.", kind=kind)
    return next((problem for case in cases if (problem := _run(answer, solution, *case))), None)


def _run(function: Any, solution: Any, arguments: tuple[Any, ...], advice: str) -> str | None:
    """Return how the result of a learner's function differs from the solution's, or None if it does not."""
    expected, listed = plain(solution(*arguments)), ", ".join(shown(plain(each)) for each in arguments)
    call = tr("For {arguments} expected {expected}", arguments=listed, expected=shown(expected))
    try:
        # A learner's function may change a list in place.
        result = function(*deepcopy(arguments))
    # The function may raise any exception.
    except Exception as error:
        raised = f"{type(error).__name__} ({error})"
        return tr("{call}, but your function raised {raised}: {advice}.", call=call, raised=raised, advice=tr(advice))
    if isinstance(result, Iterator):
        kind = type(result).__name__
        return tr("{call}, got a {kind}: make a list of it with list(…).", call=call, kind=kind)
    if result is None:
        return tr("{call}, got None: end the function with return and the result.", call=call)
    result = plain(result)
    if same(result, expected):
        return None
    return tr("{call}, got {result}: {advice}.", call=call, result=shown(result), advice=tr(advice))

"""Learners' answers: conversion to plain Python values, comparison, and one judge for cases and usual mistakes."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from math import isclose
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from course_lib.language.words import tr

if TYPE_CHECKING:
    from torch import Tensor

# A call of the learner's function: its arguments, the right result, and what helps if the result is another one. Cases
# for tensors have no advice; mistakes have it.
Case = tuple[tuple[Any, ...], Any, str] | tuple[tuple[Any, ...], Any]
# A wrong result, and advice for the learner who has it.
Mistake = tuple[Any, str]
# Relative and absolute difference of two numbers that count as equal: plain ones, and those of tensors.
PLAIN, TENSOR = (1e-6, 1e-6), (1e-4, 1e-5)


def judge(answer: Any, cases: Sequence[Case], mistakes: Sequence[Mistake] = (), peer: str = "") -> str | None:
    """Return what is wrong with the learner's function, or None if its result is right in every case.

    A right or wrong result may be a function that computes it from the arguments. The learner's function gets a copy of
    the arguments, because it may change a list in place.

    Args:
        answer: the learner's function.
        cases: calls with their right results.
        mistakes: of results that are tensors: wrong results, each with advice.
        peer: of results that are tensors: who made the right ones, such as "PyTorch".
    """
    if not callable(answer):
        kind = type(answer).__name__
        return tr("expected a function, got {kind}: write its name without parentheses.", kind=kind)
    for arguments, right, *advice in cases:
        expected = _result(right, arguments)
        if peer:
            found = answer(*deepcopy(arguments))
            problem = compare(found, expected, [(_result(each, arguments), text) for each, text in mistakes], peer)
        else:
            problem = _run(answer, arguments, plain(expected), *advice)
        if problem:
            return problem
    return None


def _result(right: Any, arguments: tuple[Any, ...]) -> Any:
    return right(*arguments) if callable(right) else right


def _run(answer: Any, arguments: tuple[Any, ...], expected: Any, advice: str) -> str | None:
    """Call the learner's function. Return how its result differs from the right one, or None if it does not."""
    listed = ", ".join(shown(plain(each)) for each in arguments)
    call = tr("For {arguments} expected {expected}", arguments=listed, expected=shown(expected))
    try:
        result = answer(*deepcopy(arguments))
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


def compare(result: Any, expected: "Tensor", mistakes: Sequence[Mistake], peer: str) -> str | None:
    """Return what is wrong with a tensor: the advice of the mistake whose result it is, or how it differs; else None.

    Args:
        result: what the learner's function returned.
        expected: the right tensor.
        mistakes: wrong tensors, each with advice.
        peer: who made the right tensor.
    """
    import torch

    if not isinstance(result, torch.Tensor):
        return tr("expected a tensor, got {kind}: end with return.", kind=type(result).__name__)
    if _close(result, expected):
        return None
    for wrong, advice in mistakes:
        if _close(result, wrong):
            return tr("{advice}.", advice=tr(advice))
    if result.shape != expected.shape:
        return tr("expected the shape {wanted}, got {got}.", wanted=[*expected.shape], got=[*result.shape])
    gap = (result.double() - expected.double()).abs().max().item()
    return tr("the largest difference from {peer} is {gap:.1e}.", peer=tr(peer), gap=gap)


def _close(result: "Tensor", expected: "Tensor") -> bool:
    import torch

    relative, absolute = TENSOR
    result, expected = result.detach(), expected.detach()
    return result.shape == expected.shape and torch.allclose(
        result.to(expected.dtype), expected, relative, absolute, equal_nan=True
    )


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
        return bool(result == expected if exact else isclose(result, expected, rel_tol=PLAIN[0], abs_tol=PLAIN[1]))
    return bool(result == expected)


def shown(value: Any) -> str:
    """Return a value as a message shows it: functions by name, floats with at most six decimals."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, float):
        return repr(round(value, 6))
    return str(value.__qualname__) if hasattr(value, "__qualname__") else repr(value)

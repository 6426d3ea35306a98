"""Learners' answers: conversion to plain Python values, comparison, and two judges: of plain results and of tensors."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from math import isclose
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from course_lib.language.words import tr

if TYPE_CHECKING:
    from torch import Tensor

# A call of a function that returns plain values: its arguments, the right result, and what helps if it is another one.
Case = tuple[tuple[Any, ...], Any, str]
# A call of a function that returns a tensor: its arguments and the right tensor.
TensorCall = tuple[tuple[Any, ...], Any]
# A wrong tensor, and advice for the learner who has it.
Mistake = tuple[Any, str]
# In the arguments of both judges, a right or wrong result may also be a function that computes it from the arguments of
# the call.

# Relative and absolute difference of two numbers that count as equal.
PLAIN_TOLERANCE, TENSOR_TOLERANCE = (1e-6, 1e-6), (1e-4, 1e-5)


def judge_cases(answer: Any, cases: Sequence[Case]) -> str | None:
    """Return what is wrong with the learner's function in the first case that fails, or None if none fails.

    The learner's function gets a copy of the arguments, because it may change a list in place.
    """
    if not callable(answer):
        return _no_function(answer)
    for arguments, right, advice in cases:
        if problem := _run(answer, arguments, plain(_result(right, arguments)), advice):
            return problem
    return None


def judge_tensors(answer: Any, calls: Sequence[TensorCall], mistakes: Sequence[Mistake], peer: str) -> str | None:
    """Return what is wrong with the first wrong tensor of the learner's function, or None if all are right.

    Args:
        answer: the learner's function. It gets a copy of the arguments.
        calls: calls with the right tensors.
        mistakes: wrong tensors, each with advice.
        peer: who made the right tensors, such as "PyTorch".
    """
    if not callable(answer):
        return _no_function(answer)
    for arguments, right in calls:
        expected = _result(right, arguments)
        found = answer(*deepcopy(arguments))
        wrong = [(_result(each, arguments), advice) for each, advice in mistakes]
        if problem := compare(found, expected, wrong, peer):
            return problem
    return None


def _no_function(answer: Any) -> str:
    kind = type(answer).__name__
    return tr("expected a function, got {kind}: write its name without parentheses.", kind=kind)


def _result(result: Any, arguments: tuple[Any, ...]) -> Any:
    return result(*arguments) if callable(result) else result


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
    if advice := known_mistake(result, mistakes):
        return advice
    if result.shape != expected.shape:
        return tr("expected the shape {wanted}, got {got}.", wanted=[*expected.shape], got=[*result.shape])
    gap = (result.double() - expected.double()).abs().max().item()
    return tr("the largest difference from {peer} is {gap:.1e}.", peer=tr(peer), gap=gap)


def known_mistake(result: "Tensor", mistakes: Sequence[Mistake]) -> str | None:
    """Return the advice of the mistake whose tensor the learner has, or None if it is none of them."""
    for wrong, advice in mistakes:
        if _close(result, wrong):
            return tr("{advice}.", advice=tr(advice))
    return None


def _close(result: "Tensor", expected: "Tensor") -> bool:
    import torch

    relative, absolute = TENSOR_TOLERANCE
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
        if isinstance(expected, Integral) and isinstance(result, Integral):
            return bool(result == expected)
        relative, absolute = PLAIN_TOLERANCE
        return isclose(result, expected, rel_tol=relative, abs_tol=absolute)
    return bool(result == expected)


def shown(value: Any) -> str:
    """Return a value as a message shows it: functions by name, floats with at most six decimals."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, float):
        return repr(round(value, 6))
    return str(value.__qualname__) if hasattr(value, "__qualname__") else repr(value)

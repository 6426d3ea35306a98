"""The forms in which learners hand in results: Python, NumPy and torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Form = Callable[[Any], Any]
# of a number
NUMBER: tuple[Form, ...] = (float, np.float32, np.array, lambda x: torch.tensor(float(x), requires_grad=True))
# of a list, also a nested one
LIST: tuple[Form, ...] = (list, tuple, lambda x: tuple(map(np.array, x)), lambda x: [torch.tensor(each) for each in x])
# of a text
TEXT: tuple[Form, ...] = (str, np.str_, np.array)


def in_forms(function: Callable[..., Any], forms: tuple[Form, ...]) -> list[Callable[..., Any]]:
    """The function with its result in each of the forms."""
    return [lambda *args, form=form: form(function(*args)) for form in forms]

"""Right and wrong answers to the exercises of chapter 1."""

import re
from typing import Any

import numpy as np
import torch


def twice(text: str) -> str:
    return re.sub(r"(?s)<ref[^>]*>.*?</ref>", "", re.sub(r"<ref[^>]*/>", "", text))


def share(text: str) -> float:
    chars = [char for char in text if not char.isspace()]
    return len([char for char in chars if 0x3041 <= ord(char) <= 0x309F]) / max(1, len(chars))


NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: [twice],
    2: [share],
    3: [(21, 3), [20, 3], np.array([19, 3]), torch.tensor([18, 3])],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda t: re.sub(r"<ref>.*</ref>", "", t), "greedy"),
        (lambda t: re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", t), "DOTALL"),
        (lambda t: print(twice(t)), "return"),
    ],
    2: [
        (lambda t: sum("ぁ" <= c <= "ヿ" for c in t) / max(1, len(t)), "katakana"),
        (lambda t: sum("ぁ" <= c <= "ゟ" for c in t) / max(1, len(t)), "white space"),
        (lambda t: 100 * share(t), "percentage"),
    ],
    3: [((64, 1), "more rows"), ((16, 4), "fewer rows"), ((64, 3), "more than 64")],
}

"""Right and wrong answers to the exercises of chapter 1."""

import re
from typing import Any

import numpy as np
import torch
from course_lib.exercises import corpus


def twice(text: str) -> str:
    return re.sub(r"(?s)<ref[^>]*>.*?</ref>", "", re.sub(r"<ref[^>]*/>", "", text))


def repetition(text: str, n: int = 10) -> float:
    dense = "".join(text.split())
    runs = [dense[at : at + n] for at in range(len(dense) - n + 1)]
    return 1 - len(set(runs)) / len(runs) if len(dense) > n else 0.0


def counted_first(text: str, n: int = 10) -> float:
    """Counts the first of equal runs, too."""
    runs = ["".join(text.split())[at : at + n] for at in range(len("".join(text.split())) - n + 1)]
    return sum(runs.count(run) > 1 for run in runs) / len(runs) if len(runs) > 1 else 0.0


def with_white_space(text: str, n: int = 10) -> float:
    runs = [text[at : at + n] for at in range(len(text) - n + 1)]
    return 1 - len(set(runs)) / len(runs) if len(text) > n else 0.0


NAMES: dict[str, Any] = {"repetition_ours": repetition}
RIGHT: dict[int, list[Any]] = {
    1: [repetition],
    2: [twice],
    3: [(21, 3), [20, 3], np.array([19, 3]), torch.tensor([18, 3])],
    4: [corpus.OWN],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda t, n=10: repetition(t) if len(t) > n else 1.0, "at most n"),
        (counted_first, "first time"),
        (with_white_space, "white space"),
    ],
    2: [
        (lambda t: re.sub(r"<ref>.*</ref>", "", t), "greedy"),
        (lambda t: re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", t), "DOTALL"),
        (lambda t: print(twice(t)), "return"),
    ],
    3: [((64, 1), "more rows"), ((16, 4), "fewer rows"), ((64, 3), "more than 64")],
    4: [
        ("短い。", "at least"),
        (corpus.OWN + "終", "end in"),
        (corpus.OWN + corpus.OWN, "twice"),
        (
            "朝の市場では、魚を並べる人の声が通りの向こうまで届いていた。"
            + "私はその声を聞きながら、昨日の雨でぬれた石畳をゆっくりと歩き、"
            "角の店で豆腐を一丁買った。帰り道には、もう日が高くなっていて、子どもたちが学校へ急ぐのとすれちがった。",
            "keep this text",
        ),
    ],
}

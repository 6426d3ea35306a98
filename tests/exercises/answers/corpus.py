"""Other right answers, and wrong ones, to the exercises of chapter 1."""

import re
from typing import Any

import numpy as np
import torch
from course_lib.exercises import corpus

from tests.exercises.answers.folded import Folded


def twice(text: str) -> str:
    return re.sub(r"(?s)<ref[^>]*>.*?</ref>", "", re.sub(r"<ref[^>]*/>", "", text))


FOLDED = Folded("01_corpus_prep")
NAMES, changed = FOLDED.names, FOLDED.changed
RIGHT: dict[int, list[Any]] = {
    2: [twice],
    3: [(21, 3), [20, 3], np.array([19, 3]), torch.tensor([18, 3])],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (changed("repetition_ours", ("return 0.0", "return 1.0")), "at most n"),
        (
            changed("repetition_ours", ("(len(runs) - len(set(runs)))", "sum(runs.count(run) > 1 for run in runs)")),
            "first time",
        ),
        (changed("repetition_ours", ('"".join(text.split())', "text")), "white space"),
    ],
    2: [
        (lambda t: re.sub(r"<ref>.*</ref>", "", t), "greedy"),
        (lambda t: re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", t), "DOTALL"),
        (lambda t: print(twice(t)), "return"),
    ],
    3: [((64, 1), "more rows"), ((16, 4), "fewer rows"), ((64, 3), "more than 64")],
    4: [
        ("短い。", "at least"),
        (corpus.REMOVED_TEXT + "終", "end in"),
        (corpus.REMOVED_TEXT + corpus.REMOVED_TEXT, "twice"),
        (
            "朝の市場では、魚を並べる人の声が通りの向こうまで届いていた。"
            + "私はその声を聞きながら、昨日の雨でぬれた石畳をゆっくりと歩き、"
            "角の店で豆腐を一丁買った。帰り道には、もう日が高くなっていて、子どもたちが学校へ急ぐのとすれちがった。",
            "keep this text",
        ),
    ],
}

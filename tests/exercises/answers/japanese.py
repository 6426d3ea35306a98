"""Right and wrong answers to the exercises of chapter 2."""

import re
from typing import Any

import numpy as np
import torch
from course_lib.exercises import japanese
from course_lib.japanese import normalize


def by_pattern(marked: str) -> str:
    signs = {"s": "␣", "e": "␛"}
    bare = re.sub("(^| )␣+", r"\1", marked)
    return re.sub("␛([se])", lambda match: signs[match[1]], " ".join(bare.split(" "))).strip()


NAMES: dict[str, Any] = {}
NORMAL = "LLMの学習スーパー①"
RIGHT: dict[int, list[Any]] = {
    1: [normalize(japanese.TYPED), np.str_(NORMAL), np.array(NORMAL)],
    2: [(3853, -1176), np.array([3853, -1176]), [3853.0, -1176.0]],
    3: [by_pattern],
    4: [27, 33.0, torch.tensor(32.0)],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        ("LLMの学習スーパー1", "NFKC"),
        (np.array("LLMの学習スーーーパー①"), "run of ー"),
        ("LLMの学習スーパ①", "character by character"),
    ],
    2: [((-1176, 3853), "order"), ((-3853, 1176), "other way round"), ((47624, -17031), "of each path, and subtract")],
    3: [
        (lambda m: m.replace(" ", "").replace("␣", " "), "join the words"),
        (lambda m: m.replace("␣", ""), "at the end"),
        (lambda m: by_pattern(m.replace("␛e", "␛")), "before ␛e"),
    ],
    4: [(23, "too few"), (17, "a few more"), (102, "more work"), (0.5, "whole number")],
}

"""Right and wrong answers to the exercises of chapter 1."""

import re
from typing import Any

import numpy as np
import torch

from tests.exercises.answers.forms import NUMBER, TEXT, in_forms


def twice(text: str) -> str:
    return re.sub(r"(?s)<ref[^>]*>.*?</ref>", "", re.sub(r"<ref[^>]*/>", "", text))


def scan(text: str) -> str:
    while (start := text.find("<ref")) >= 0:
        end = text.index(">", start)
        end = end + 1 if text[end - 1] == "/" else text.index("</ref>", start) + 6
        text = text[:start] + text[end:]
    return text


def share(text: str) -> float:
    chars = [char for char in text if not char.isspace()]
    return len([char for char in chars if 0x3041 <= ord(char) <= 0x309F]) / max(1, len(chars))


NAMES: dict[str, Any] = {}
RIGHT: dict[int, list[Any]] = {
    1: [
        twice,
        scan,
        lambda t: re.compile(r"<ref[^>]*?/>|<ref[^>]*>[\s\S]*?</ref>").sub("", t),
        lambda t: "".join(re.split(r"(?s)<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", t)),
        *in_forms(twice, TEXT),
    ],
    2: [
        share,
        lambda t: len(re.findall("[ぁ-ゟ]", t)) / (len(re.findall(r"\S", t)) or 1),
        *in_forms(share, NUMBER),
    ],
    3: [(21, 3), [20, 3], np.array([19, 3]), torch.tensor([18, 3]), (np.int64(21), np.int32(3))],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda t: re.sub(r"<ref>.*</ref>", "", t), "greedy"),
        (lambda t: re.sub(r"<ref[^>]*>.*?</ref>", "", t), "closes itself"),
        (lambda t: re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", t), "DOTALL"),
        (lambda t: re.sub(r"</?ref[^>]*>", "", t), "plain reference"),
        (lambda t: print(twice(t)), "end the function with return"),
        ("本文です。", "expected a function"),
    ],
    2: [
        (lambda t: sum("ぁ" <= c <= "ヿ" for c in t) / max(1, len(t)), "katakana are not hiragana"),
        (lambda t: sum("ぁ" <= c <= "ゟ" for c in t) / max(1, len(t)), "white space counts neither"),
        (lambda t: sum("ぁ" <= c <= "ゟ" for c in "".join(t.split())) / len("".join(t.split())), "raised ZeroDivisionError"),
        (lambda t: sum("ぁ" <= c <= "ゟ" for c in t), "that is a count"),
        (lambda t: 100 * share(t), "not a percentage"),
        (lambda t: len(re.findall("[ぁ-ゟ]", t)) / max(1, len(re.findall("[ぁ-ヿ]", t))), "kanji count"),
    ],
    3: [
        ((64, 1), "With more rows"),
        ((32, 2), "With more rows"),
        ((16, 4), "With fewer rows"),
        ((10, 3), "hashes left for more bands"),
        ((3, 21), "the order is (bands, rows)"),
        ((64, 3), "take 192 hashes"),
        ((0, 3), "whole numbers from 1 on"),
        ((21.5, 3), "whole numbers from 1 on"),
        (64, "hand in two numbers"),
    ],
}  # fmt: skip

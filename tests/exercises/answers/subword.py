"""Other right answers, and wrong ones, to the exercises of chapter 3."""

from collections import Counter
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
import torch
from course_lib.exercises import subword
from course_lib.subword.diagrams import segmentations

from tests.exercises.answers.folded import Folded

Pair = tuple[str, str]
Words = dict[tuple[str, ...], int]


def probabilities(word: str, scores: dict[str, float]) -> dict[tuple[str, ...], float]:
    return {pieces: exp(score) for score, pieces in segmentations(word, scores)}


FOLDED = Folded("03_tokenizers", Counter=Counter, log=log, probabilities=probabilities)
NAMES, changed = FOLDED.names, FOLDED.changed
pair_counts, merge, encode_word = NAMES["pair_counts"], NAMES["merge"], NAMES["encode_word"]
log_probability, loss_if_removed = NAMES["log_probability"], NAMES["loss_if_removed"]
tokenizer = partial(changed, "MineOurs")
merge_once = changed("merge_ours", ("== pair", "== pair and at == len(symbols)"))


def of_characters(words: Words) -> Any:
    """Pairs the characters of a word and not its symbols."""
    return pair_counts({tuple("".join(word)): frequency for word, frequency in words.items()})


def encode_once(word: str, merges: list[Pair]) -> list[str]:
    """Applies each merge at its first place only."""
    symbols = {tuple(word): 1}
    for pair in merges:
        symbols = merge_once(symbols, pair)
    return list(*symbols)


def without(scores: dict[str, float], piece: str) -> dict[str, float]:
    return {other: score for other, score in scores.items() if other != piece}


def deletes(words: dict[str, int], scores: dict[str, float], piece: str) -> float:
    before = log_probability(words, scores)
    scores.pop(piece, None)
    return before - log_probability(words, scores)


RIGHT: dict[int, list[Any]] = {
    2: [lambda words, pair: dict(merge(words, pair))],
    5: [np.array([0, 1600]), torch.tensor([0, 1500])],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda words: Counter(pair for word in words for pair in zip(word, word[1:])), "add the frequency"),
        (lambda words: {pair: n for w, n in words.items() for pair in zip(w, w[1:])}, "add up over all words"),
        (lambda words: Counter({(min(p), max(p)): n for p, n in pair_counts(words).items()}), "expected"),
        (of_characters, "not the characters"),
    ],
    2: [
        (merge_once, "not once"),
        (changed("merge_ours", ("] += frequency", "] = frequency")), "add their frequencies"),
        (lambda words, pair: {w: n for w, n in merge(words, pair).items() if "".join(pair) in w}, "stay as they are"),
        (lambda words, pair: words, "become the one symbol"),
    ],
    3: [
        (lambda word, merges: list(word), "in which 大 and 学 are one"),
        (encode_once, "not once"),
        (lambda word, merges: encode_word(word, sorted(merges)), "order of the merges"),
    ],
    4: [
        (lambda words, scores, piece: log_probability(words, without(scores, piece)), "costs nothing"),
        (lambda words, scores, piece: -loss_if_removed(words, scores, piece), "minus the same without"),
        (lambda words, scores, piece: loss_if_removed(dict.fromkeys(words, 1), scores, piece), "minus the same"),
        (deletes, "make a new dictionary"),
    ],
    5: [
        ((True, 1500), "word boundary"),
        ((False, 500), "keep more"),
        ((False, 2500), "keep fewer"),
        ((1500, False), "True or False first"),
    ],
    6: [
        ((subword.DEAR, subword.CHEAP), "is wanted"),
        ((subword.CHEAP, "短い文。"), "at least 150"),
        ((subword.CHEAP, "plain English " * 20), "Japanese"),
        ((subword.CHEAP, "鰯と鯖と鰤と鱈。" * 20), "repeats itself"),
    ],
    7: [
        (tokenizer(('symbols += [" "] if at else []', "pass")), "each space is a token"),
        (tokenizer(("< entries and", "< 260 and")), "use all entries"),
        (tokenizer(("< entries and", "< entries + 9 and")), "ids are 0 to 291"),
        (tokenizer(("sign * numbers[at]", "sign")), "keep the counts right"),
        (tokenizer(("min(tied, key=lambda pair: [*map(self.entries.index, pair)])", "tied[-1]")), "the smaller ids"),
        (tokenizer((", reverse=True", "")), "the longest special text first"),
        (tokenizer(('errors="replace"', "")), "UnicodeDecodeError"),
        (tokenizer(('errors="replace"', 'errors="ignore"')), "errors='replace'"),
        (tokenizer(("if part not in self.special ", "")), "learn nothing from special texts"),
        (tokenizer(("in holding.pop(pair)", "in range(len(words))")), "only words that hold the merged pair"),
        (
            tokenizer(("encode_fast(word, self.ranks)", "encode_word(word, self.ranks)")),
            "only merges of pairs that the word has",
        ),
        (
            tokenizer(
                (" and (most := max(counts.values(), default=0))", ""),
                ("tied = [", "most = max(counts.values(), default=0); tied = ["),
            ),
            "KeyError",
        ),
        (tokenizer(("map(as_bytes, special)", "special")), "1 is wanted"),
    ],
}

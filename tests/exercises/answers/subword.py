"""Right and wrong answers to the exercises of chapter 3."""

import re
from collections import Counter, defaultdict
from math import log
from typing import Any

import numpy as np
import torch
from course_lib.exercises import subword
from course_lib.subword.diagrams import segmentations

Pair = tuple[str, str]
Words = dict[tuple[str, ...], int]


def pair_counts(words: Words) -> Counter[Pair]:
    counts: Counter[Pair] = Counter()
    for word, frequency in words.items():
        for pair in zip(word, word[1:]):
            counts[pair] += frequency
    return counts


def of_characters(words: Words) -> Counter[Pair]:
    """Pairs the characters of a word and not its symbols."""
    return pair_counts({tuple("".join(word)): frequency for word, frequency in words.items()})


def merge_word(word: tuple[str, ...], pair: Pair, most: int = 99) -> tuple[str, ...]:
    symbols, at = list(word), 0
    while at < len(symbols) - 1 and most:
        if (symbols[at], symbols[at + 1]) == pair:
            symbols[at : at + 2] = ["".join(pair)]
            most -= 1
        at += 1
    return tuple(symbols)


def merge(words: Words, pair: Pair) -> Counter[tuple[str, ...]]:
    merged: Counter[tuple[str, ...]] = Counter()
    for word, frequency in words.items():
        merged[merge_word(word, pair)] += frequency
    return merged


def encode_word(word: str, merges: list[Pair], most: int = 99) -> list[str]:
    symbols = tuple(word)
    for pair in merges:
        symbols = merge_word(symbols, pair, most)
    return list(symbols)


def log_probability(words: dict[str, int], scores: dict[str, float]) -> float:
    return sum(n * log(sum(2.718281828459045**s for s, _ in segmentations(word, scores))) for word, n in words.items())


def without(scores: dict[str, float], piece: str) -> dict[str, float]:
    return {other: score for other, score in scores.items() if other != piece}


def loss_if_removed(words: dict[str, int], scores: dict[str, float], piece: str) -> float:
    return log_probability(words, scores) - log_probability(words, without(scores, piece))


def deletes(words: dict[str, int], scores: dict[str, float], piece: str) -> float:
    before = log_probability(words, scores)
    scores.pop(piece, None)
    return before - log_probability(words, scores)


def as_bytes(text: str) -> str:
    return text.encode().decode("latin-1")


NAMES: dict[str, Any] = {
    "Counter": Counter,
    "as_bytes": as_bytes,
    "pair_counts": pair_counts,
    "merge": merge,
    "encode_word": encode_word,
    "pair_counts_ours": pair_counts,
    "merge_ours": merge,
    "encode_word_ours": encode_word,
    "loss_if_removed_ours": loss_if_removed,
}


TOKENIZER = """
class Mine:
    def __init__(self, lines, entries, special):
        self.special, self.merges = sorted(special, key=len)[::-1], []
        self.pattern = "(" + "|".join(self.special) + ")"
        first = Counter(w for line in lines for part in self.parts(line) for w in as_bytes(part).split(" "))
        words, numbers = [tuple(word) for word in first], list(first.values())
        counts, places = Counter(), defaultdict(set)
        for at, word in enumerate(words):
            for pair in zip(word, word[1:]):
                counts[pair] += numbers[at]
                places[pair].add(at)
        while len(self.merges) < entries - 256:
            best = max(counts, key=counts.__getitem__)
            self.merges.append(best)
            for at in list(places[best]):
                for pair in zip(words[at], words[at][1:]):
                    counts[pair] -= numbers[at]
                (words[at],) = merge({words[at]: 1}, best)
                for pair in zip(words[at], words[at][1:]):
                    counts[pair] += numbers[at]
                    places[pair].add(at)
        self.entries = [chr(byte) for byte in range(256)] + ["".join(pair) for pair in self.merges]
        self.entries += [as_bytes(text) for text in special]
        self.ids = {entry: number for number, entry in enumerate(self.entries)}

    def parts(self, text):
        return re.split(self.pattern, text)[::2]

    def encode(self, text):
        ids = []
        for number, part in enumerate(re.split(self.pattern, text)):
            if number % 2:
                ids.append(self.ids[as_bytes(part)])
            else:
                words = [encode_word(word, self.merges) for word in as_bytes(part).split(" ")]
                ids += [self.ids[symbol] for word in words for symbol in (" ", *word)][1:]
        return ids

    def decode(self, ids):
        return "".join(self.entries[number] for number in ids).encode("latin-1").decode(errors="replace")
"""
NAMES |= {"re": re, "defaultdict": defaultdict}


def tokenizer(*changes: tuple[str, str]) -> Any:
    """Return the class above, with parts of its code replaced."""
    code, names = TOKENIZER, dict(NAMES)
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    exec(code, names)
    return names["Mine"]


NAMES["MineOurs"] = tokenizer()
RIGHT: dict[int, list[Any]] = {
    1: [pair_counts],
    2: [merge, lambda words, pair: dict(merge(words, pair))],
    3: [encode_word],
    4: [loss_if_removed],
    5: [(False, 1500), np.array([0, 1600]), torch.tensor([0, 1500])],
    6: [(subword.CHEAP, subword.DEAR)],
    7: [tokenizer()],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda words: Counter(pair for word in words for pair in zip(word, word[1:])), "add the frequency"),
        (lambda words: {pair: n for w, n in words.items() for pair in zip(w, w[1:])}, "add up over all words"),
        (lambda words: Counter({(min(p), max(p)): n for p, n in pair_counts(words).items()}), "expected"),
        (of_characters, "not the characters"),
    ],
    2: [
        (lambda words, pair: {merge_word(word, pair, 1): n for word, n in words.items()}, "not once"),
        (lambda words, pair: {merge_word(word, pair): n for word, n in words.items()}, "add their frequencies"),
        (lambda words, pair: {w: n for w, n in merge(words, pair).items() if "".join(pair) in w}, "stay as they are"),
        (lambda words, pair: words, "become the one symbol"),
    ],
    3: [
        (lambda word, merges: list(word), "in which 大 and 学 are one"),
        (lambda word, merges: encode_word(word, merges, 1), "not once"),
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
        (tokenizer(('(" ", *word)][1:]', "word]")), "each space is a token"),
        (tokenizer(("< entries - 256", "< 4")), "use all entries"),
        (tokenizer(("< entries - 256", "< entries - 247")), "ids are 0 to 291"),
        (tokenizer(("counts[pair] -= numbers[at]", "pass")), "keep the counts right"),
        (tokenizer((")[::-1]", ")")), "the longest special text first"),
        (tokenizer(('errors="replace"', "")), "UnicodeDecodeError"),
        (tokenizer(('errors="replace"', 'errors="ignore"')), "errors='replace'"),
        (tokenizer((")[::2]", ")")), "learn nothing from special texts"),
        (tokenizer(("in list(places[best])", "in range(len(words))")), "only words that hold the pair change"),
    ],
}

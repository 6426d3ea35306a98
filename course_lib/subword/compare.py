"""Measurements for comparing tokenizers on the same sentences."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from course_lib.errors import CourseError
from course_lib.japanese import mecab, normalize
from course_lib.language.columns import padded
from course_lib.language.words import tr
from course_lib.subword.config import SPECIALS, UNKNOWN
from course_lib.subword.folder import WORD, Codec

# Special tokens and byte tokens.
FIXED = re.compile("|".join([*map(re.escape, SPECIALS), "<0x[0-9A-F]{2}>"]))


@dataclass(frozen=True)
class Measures:
    """Measurements for one tokenizer, on normalized text."""

    name: str
    vocabulary: int  # number of entries
    characters_per_token: float
    unknown: float  # share of tokens that are <unk>
    crossing: float  # share of tokens that contain a word boundary found by the segmenter
    lossless: float  # share of sentences that decoding restores to their normalized text
    speed: float  # encoding speed, without preparation [MB per second]
    whole_speed: float  # encoding speed, with preparation: normalization and segmentation [MB per second]


def compare(codecs: Mapping[str, Codec], sentences: Sequence[str]) -> list[Measures]:
    """Measure every tokenizer on the same sentences and return one row for each, in the given order."""
    texts = [text for sentence in sentences if (text := normalize(sentence))]
    if not texts:
        raise CourseError("sentences: none contains text; give at least one that does")
    return [_measure(name, codec, texts) for name, codec in codecs.items()]


def overlap(first: Codec, second: Codec, shortest: int = 1) -> float:
    """Return the share of entries in common (Jaccard) of those with at least `shortest` characters, as `entries`."""
    a, b = ({entry for entry in entries(codec) if len(entry) >= shortest} for codec in (first, second))
    return len(a & b) / len(a | b)


def entries(codec: Codec) -> list[str]:
    """Return a vocabulary's entries without ▁, special tokens and byte tokens; an entry can occur twice."""
    tokens = (token for token in codec.tokenizer.get_vocab() if not FIXED.fullmatch(token))
    listed = (token.replace(WORD, "") for token in tokens)
    return [entry for entry in listed if entry]


def table(rows: Sequence[Measures]) -> str:
    """Return the measures that do not depend on the machine as a text table."""
    titles = (tr("tokenizer"), tr("entries"), tr("chars/token"), tr("unknown"), tr("crossing"), tr("lossless"))
    lines = ["".join(map(padded, titles, ("<14", ">8", ">15", ">13", ">10", ">10")))]
    lines += [
        f"{row.name:<14}{row.vocabulary:>8}{row.characters_per_token:>15.2f}"
        f"{row.unknown:>13.2%}{row.crossing:>10.1%}{row.lossless:>10.1%}"
        for row in rows
    ]
    return "\n".join(lines)


def speeds(rows: Sequence[Measures]) -> str:
    """Return the encoding speeds as a text table, without and with preparation."""
    titles = (tr("tokenizer"), tr("tokenizer alone"), tr("with preparation"))
    lines = ["".join(map(padded, titles, ("<14", ">17", ">18")))]
    lines += [f"{row.name:<14}{row.speed:>12.2f} MB/s{row.whole_speed:>13.2f} MB/s" for row in rows]
    return "\n".join(lines)


def _measure(name: str, codec: Codec, texts: list[str]) -> Measures:
    # The first call loads the segmenter's dictionary.
    codec.prepare(texts[0])
    started = time.perf_counter()
    prepared = [codec.prepare(text) for text in texts]
    ready = time.perf_counter()
    encoded = [codec.tokenizer.encode(line, add_special_tokens=False) for line in prepared]
    ended = time.perf_counter()
    size = sum(len(text.encode()) for text in texts) / 1e6
    tokens = sum(len(encoding.ids) for encoding in encoded)
    segmented = codec.preparation.segmented
    crossing = sum(_crossing(line, segmented, e.offsets) for line, e in zip(prepared, encoded, strict=True))
    return Measures(
        name=name,
        vocabulary=codec.tokenizer.get_vocab_size(),
        characters_per_token=sum(map(len, texts)) / tokens,
        unknown=sum(encoding.ids.count(SPECIALS.index(UNKNOWN)) for encoding in encoded) / tokens,
        crossing=crossing / tokens,
        lossless=sum(int(codec.decode(e.ids) == text) for e, text in zip(encoded, texts, strict=True)) / len(texts),
        speed=size / (ended - ready),
        whole_speed=size / (ended - started),
    )


def _crossing(prepared: str, segmented: bool, offsets: Sequence[tuple[int, int]]) -> int:
    """Return how many tokens, by their (start, end), have a word boundary of the line strictly inside them."""
    if segmented:
        boundaries = {index for index, char in enumerate(prepared) if char == " "}
    else:
        boundaries = set(accumulate(map(len, mecab.words(prepared))))
    return sum(not boundaries.isdisjoint(range(start + 1, end)) for start, end in offsets)

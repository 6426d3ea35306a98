"""Measurements for comparing tokenizers on the same sentences."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from course_lib.errors import CourseError
from course_lib.japanese import mecab, normalize
from course_lib.subword.config import UNKNOWN
from course_lib.subword.folder import WORD, Codec


@dataclass(frozen=True)
class Measures:
    """Measurements for one tokenizer; characters are counted in the normalized text."""

    name: str
    vocabulary: int  # number of entries
    characters_per_token: float
    unknown: float  # share of tokens that are <unk>
    crossing: float  # share of tokens that contain a word boundary found by the segmenter
    lossless: float  # share of sentences that decoding restores to their normalized text
    speed: float  # encoding speed, without preparation [MB of normalized text per second]


def compare(codecs: Mapping[str, Codec], sentences: Sequence[str]) -> list[Measures]:
    """Measure every tokenizer on the same sentences and return one row for each, in the given order.

    Raises CourseError if no sentence contains text.
    """
    texts = [text for sentence in sentences if (text := normalize(sentence))]
    if not texts:
        raise CourseError("sentences: none contains text; give at least one that does")
    return [_measure(name, codec, texts) for name, codec in codecs.items()]


def overlap(first: Codec, second: Codec) -> float:
    """Return the share of entries that two vocabularies have in common: shared entries divided by the size of their
    union.

    sentencepiece's ▁ is removed from the entries before they are compared.
    """
    a, b = ({token.replace(WORD, "") for token in codec.tokenizer.get_vocab()} for codec in (first, second))
    return len(a & b) / len(a | b)


def table(rows: Sequence[Measures], speed: bool = False) -> str:
    """Return the rows as a text table, including the encoding speed if `speed` is true.

    The speed depends on the machine.
    """
    lines = [
        f"{'tokenizer':<14}{'entries':>8}{'chars/token':>13}{'unknown':>9}{'crossing':>10}{'lossless':>10}"
        + ("   MB/s" if speed else "")
    ]
    for row in rows:
        line = (
            f"{row.name:<14}{row.vocabulary:>8}{row.characters_per_token:>13.2f}"
            f"{row.unknown:>9.2%}{row.crossing:>10.1%}{row.lossless:>10.1%}"
        )
        lines.append(line + (f"{row.speed:>7.2f}" if speed else ""))
    return "\n".join(lines)


def _measure(name: str, codec: Codec, texts: list[str]) -> Measures:
    prepared = [codec.prepare(text) for text in texts]
    started = time.perf_counter()
    encoded = [codec.tokenizer.encode(line, add_special_tokens=False) for line in prepared]
    seconds = time.perf_counter() - started
    tokens = sum(len(encoding.ids) for encoding in encoded)
    unknown = int(codec.tokenizer.token_to_id(UNKNOWN) or 0)
    segmented = codec.preparation.segmented
    crossing = sum(_crossing(line, segmented, e.offsets) for line, e in zip(prepared, encoded, strict=True))
    return Measures(
        name=name,
        vocabulary=codec.tokenizer.get_vocab_size(),
        characters_per_token=sum(map(len, texts)) / tokens,
        unknown=sum(list(encoding.ids).count(unknown) for encoding in encoded) / tokens,
        crossing=crossing / tokens,
        lossless=sum(int(codec.decode(e.ids) == text) for e, text in zip(encoded, texts, strict=True)) / len(texts),
        speed=sum(len(text.encode()) for text in texts) / seconds / 1e6,
    )


def _crossing(prepared: str, segmented: bool, offsets: Sequence[tuple[int, int]]) -> int:
    """Return how many tokens in a line have a word boundary strictly inside them.

    `prepared` is the line as the tokenizer reads it. If `segmented` is true, spaces mark the word boundaries;
    otherwise, MeCab finds them. `offsets` holds the (start, end) of each token [characters].
    """
    if segmented:
        boundaries = {index for index, char in enumerate(prepared) if char == " "}
    else:
        boundaries = set(accumulate(map(len, mecab.words(prepared))))
    return sum(not boundaries.isdisjoint(range(start + 1, end)) for start, end in offsets)

"""Builder for a GPTSAN vocabulary: writes vocab.txt, emoji.json and tokenizer_config.json in the published format.

The score of a candidate entry is the number of tokens that it saves: occurrences × (length − 1) for a substring of 2 or
3 letters, occurrences × (UTF-8 bytes − 1) for a character, which is encoded as bytes without an entry. The vocabulary
has the most frequent characters, as many as cover the given share of the texts (sentencepiece's `character_coverage`),
then the candidates with the highest scores, and the special entries.

Ids go to substrings by score, characters by frequency, special entries. The encoder takes the matching entry with the
smallest id, so a character must have a larger id than every substring that begins with it. A substring of 3 letters is
omitted if its first 2 letters score at least as high, because the encoder would never use it.
"""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, write_json
from course_lib.gptsan.emoji import emoji_tables
from course_lib.gptsan.swe import SPECIAL_TOKENS, SPECIALS, SubwordEncoding

# Tokens for spaces, line ends and emoji in prepared text.
MARKS = re.compile(r"<\|?\w+\|?>")
LETTERS = re.compile(r"[^\W\d_]{2,}")
# Single characters included in every vocabulary.
ALWAYS = "".join(map(chr, range(0x21, 0x7F))) + "、。｡．？！：；"
# Minimum number of occurrences of an entry.
LEAST = 2
# Maximum number of substrings counted at once; beyond this number, the rarest are dropped.
ROOM = 4_000_000
TOKENIZER_CONFIG = {
    "tokenizer_class": "GPTSanTokenizer",
    **SPECIAL_TOKENS,
    "padding_side": "left",
    "do_clean_text": False,
}


def build_vocabulary(texts: Iterable[str], size: int, folder: Path, coverage: float) -> dict[str, int]:
    """Build a vocabulary of `size` entries, write it to a folder that GPTSanTokenizer can load, and return the counts.

    `coverage` is the share of the texts' characters, counted with repetitions, whose entries come before any
    substring's. With 0, characters and substrings compete by their scores.
    """
    least = len(SPECIALS) + len(ALWAYS)
    if size <= least:
        raise UsageError(f"size: {size} is too small; allowed: more than {least}, the special entries and ASCII")
    tables = emoji_tables()
    with atomic_folder(folder) as temporary:
        number, length, characters, substrings = _count(texts, tables)
        if not any(not character.isspace() for character in characters):
            raise CourseError("there is no text to build a vocabulary from")
        scores = _worth(characters, substrings)
        if size - least > len(scores):
            raise UsageError(f"size: {size} is more than these texts fill; allowed: up to {least + len(scores)}")
        first = _covering(characters, coverage) & scores.keys()
        chosen = sorted(scores, key=lambda entry: (entry not in first, -scores[entry], entry))[: size - least]
        long = [entry for entry in chosen if len(entry) > 1]
        single = sorted({*ALWAYS, *(entry for entry in chosen if len(entry) == 1)}, key=lambda c: (-characters[c], c))
        lines = [*long, *single, *SPECIALS]
        # `substrings` are the entries of 2 or 3 characters, `single` those of one.
        sizes = {"entries": len(lines), "substrings": len(long), "single": len(single)}
        counts = {"texts": number, "characters": length} | sizes
        # Without a newline at the end, which the original tools do not expect.
        (temporary / "vocab.txt").write_text("\n".join(lines), encoding="utf8", newline="\n")
        for name, content in ("emoji", tables), ("tokenizer_config", TOKENIZER_CONFIG), ("preparation", counts):
            write_json(temporary / f"{name}.json", content)
    return counts


def _count(texts: Iterable[str], tables: dict[str, dict[str, str]]) -> tuple[int, int, Counter[str], Counter[str]]:
    """Count the texts, their characters, and the occurrences of each character and of each 2 or 3 letters."""
    prepare = SubwordEncoding(SPECIALS, tables["emoji"], tables["emoji_inv"]).prepare
    number, length, forgotten = 0, 0, 0
    characters, substrings = Counter[str](), Counter[str]()
    for text in texts:
        number += 1
        length += len(text)
        for piece in MARKS.split(prepare(text)):
            characters.update(piece)
            for word in LETTERS.findall(piece):
                substrings.update(map("".join, pairwise(word)))
                substrings.update(map("".join, zip(word, word[1:], word[2:], strict=False)))
        if len(substrings) > ROOM:
            forgotten += 1
            substrings = Counter({entry: n for entry, n in substrings.items() if n > forgotten})
    return number, length, characters, substrings


def _worth(characters: Counter[str], substrings: Counter[str]) -> dict[str, int]:
    """Return the score of each candidate entry: the number of tokens that it saves."""
    scores = {c: n * (len(c.encode()) - 1) for c, n in characters.items() if n >= LEAST and c not in ALWAYS}
    long = {entry: n * (len(entry) - 1) for entry, n in substrings.items() if n >= LEAST}
    return scores | {entry: n for entry, n in long.items() if len(entry) == 2 or n > long.get(entry[:-1], 0)}


def _covering(characters: Counter[str], coverage: float) -> set[str]:
    """Return the most frequent characters that make up a share of all occurrences."""
    missing, chosen = coverage * characters.total(), set()
    for character in sorted(characters, key=lambda c: (-characters[c], c)):
        if missing > 0:
            chosen.add(character)
            missing -= characters[character]
    return chosen

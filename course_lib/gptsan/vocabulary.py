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
from course_lib.gptsan.swe import SPECIAL_TOKENS, SPECIALS, SubwordEncoding

# Tokens for spaces, line ends and emoji in prepared text.
PREPARED_TOKENS = re.compile(r"<\|?\w+\|?>")
LETTERS = re.compile(r"[^\W\d_]{2,}")
# Single characters included in every vocabulary.
ALWAYS = "".join(map(chr, range(0x21, 0x7F))) + "、。｡．？！：；"
# Minimum number of occurrences of an entry.
LEAST = 2
# Maximum number of substrings counted at once; beyond this number, the rarest are dropped.
MOST_SUBSTRINGS = 4_000_000
TOKENIZER_CONFIG = {
    "tokenizer_class": "GPTSanTokenizer",
    **SPECIAL_TOKENS,
    "padding_side": "left",
    "do_clean_text": False,
}
# For each emoji token: the string that it decodes to, and its code points. Where ranges overlap, the narrower one wins.
EMOJI_GROUPS = (
    ("😀", "1F600-1F60F 1F617-1F61D 1F638-1F63D 1F641-1F644 1F910-1F917 1F970-1F97A"),
    ("🤕", "1F610-1F640 1F915 1F920-1F92F"),
    ("⚽", "26BD-26BE 26F3 2728 1F380-1F3D3 1F3F5-1F3F9 1F93A-1F94F"),
    ("🐯", "1F400-1F43F 1F54A 1F980-1F9AE"),
    ("🇯🇵", "1F1E6-1F1FF 1F38C 1F3C1 1F3F3-1F3F4 1F6A9"),
    ("🍙", "2615 1F32D-1F32F 1F336 1F33D-1F33E 1F344-1F37F 1F950-1F96F 1F9C0-1F9CB"),
    (
        "🥁",
        "231A-231B 23E9-23F3 260E 2702 2708-2709 270F 1F451-1F462 1F488-1F5FA 1F941 1F97B-1F97F 1F9E0-1F9FF "
        "1FA70-1FAFF",
    ),
    (
        "🤚",
        "261D 270A-270D 1F3FB-1F3FF 1F440-1F450 1F463-1F487 1F4AA 1F590-1F596 1F645-1F64F 1F918-1F91F 1F930-1F939 "
        "1F9AF-1F9DF",
    ),
    ("❤", "2665 2763-2764 1F48B-1F4A0 1F5A4 1F60D 1F618 1F90D-1F90F"),
    ("🟥", "203C 2049 2648-2653 26A0-26A1 26D4 2705 274C-2757 2B55 1F170-1F19A 1F500-1F53D 1F6AB-1F6B3 1F7E0-1F7EB"),
    ("🌏", "2600-2604 2614 26C4-26C5 2B50 1F300-1F343 1F3D4-1F3F0 1F5FB-1F5FF 1F680-1F6FF"),
    ("(^_^)", ""),
)
EMOTICONS = "(*^_^*) (^_^;) (^_^) (^o^) (^-^) (^^;) (T_T) (;_;) (>_<) (´・ω・`) (・∀・) (^^)"
# Variation selector 16, which requests the color version of the preceding character.
COLOURED = "\ufe0f"


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
        for piece in PREPARED_TOKENS.split(prepare(text)):
            characters.update(piece)
            for word in LETTERS.findall(piece):
                substrings.update(map("".join, pairwise(word)))
                substrings.update(map("".join, zip(word, word[1:], word[2:], strict=False)))
        if len(substrings) > MOST_SUBSTRINGS:
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


def emoji_tables() -> dict[str, dict[str, str]]:
    """Return the contents of emoji.json: each string, longest first, to its token, and each token to its string.

    The table is built from Unicode ranges, so it also covers later emoji. It has no sequences joined by U+200D
    (families, professions), of a hand and a skin tone, or of two letters as a flag; each character of one is encoded
    separately.
    """
    token_of = {shown: f"<|emoji{number}|>" for number, (shown, _) in enumerate(EMOJI_GROUPS, 1)}
    ranges = []
    for shown, codes in EMOJI_GROUPS:
        for bounds in codes.split():
            first, last = (int(bound, 16) for bound in (bounds.split("-") * 2)[:2])
            ranges.append((first - last, range(first, last + 1), token_of[shown]))
    table = {chr(code): token for _, codes, token in sorted(ranges, key=lambda r: r[0]) for code in codes}
    table |= {character + COLOURED: token for character, token in table.items() if len(character) == 1}
    # The string of a token may be two characters: the flag.
    table |= token_of
    table |= dict.fromkeys(EMOTICONS.split(), token_of["(^_^)"])
    return {
        "emoji": {text: table[text] for text in sorted(table, key=lambda text: (-len(text), text))},
        "emoji_inv": {token: shown for shown, token in token_of.items()},
    }

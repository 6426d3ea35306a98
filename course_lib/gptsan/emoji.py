"""Table of emoji and emoticons: maps strings to twelve tokens, and each token back to one string.

The table is built from Unicode ranges, so it also covers later emoji. It has no sequences joined by U+200D (families,
professions), of a hand and a skin tone, or of two letters as a flag; each character of one is encoded separately.
"""

# For each token: the string that it decodes to, and its code points. Where ranges overlap, the narrower one wins.
GROUPS = (
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
FACES = "(*^_^*) (^_^;) (^_^) (^o^) (^-^) (^^;) (T_T) (;_;) (>_<) (´・ω・`) (・∀・) (^^)"
# Variation selector 16, which requests the color version of the preceding character.
COLOURED = "\ufe0f"


def emoji_tables() -> dict[str, dict[str, str]]:
    """Return the contents of emoji.json: each string, longest first, to its token, and each token to its string."""
    token_of = {shown: f"<|emoji{number}|>" for number, (shown, _) in enumerate(GROUPS, 1)}
    ranges = []
    for shown, codes in GROUPS:
        for bounds in codes.split():
            first, last = (int(bound, 16) for bound in (bounds.split("-") * 2)[:2])
            ranges.append((first - last, range(first, last + 1), token_of[shown]))
    table = {chr(code): token for _, codes, token in sorted(ranges, key=lambda r: r[0]) for code in codes}
    table |= {character + COLOURED: token for character, token in table.items() if len(character) == 1}
    # The string of a token may be two characters: the flag.
    table |= token_of
    table |= dict.fromkeys(FACES.split(), token_of["(^_^)"])
    return {
        "emoji": {text: table[text] for text in sorted(table, key=lambda text: (-len(text), text))},
        "emoji_inv": {token: shown for shown, token in token_of.items()},
    }

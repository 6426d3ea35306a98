"""A vocabulary small enough to check by hand, of the published form, and the encoding written down once more, slowly."""

import json
from pathlib import Path

from course_lib.gptsan.swe import SPECIALS, SubwordEncoding

ENTRIES = [
    "てい", "ている", "です", "慶応,慶應", "学生,學生", "生まれ", "生", "大", "学,學", "私", "は", "で", "す", "て", "い", "る", "、", "。",
    "(", ")", ",", "<", ">", "|", "a", "b", "BR", "ab", "ー", "<a", "<|q", "<|q|>", "０,0", "東", "犬", "犬", *SPECIALS,
]  # fmt: skip
FACES = "😀 🤕 ⚽ 🐯 🇯🇵 🍙 🥁 🤚 ❤ 🟥 🌏 (^_^)"
SHOWN = {f"<|emoji{n}|>": shown for n, shown in enumerate(FACES.split(), 1)}
EMOJI = {
    "(*^_^*)": "<|emoji12|>", "(^_^)": "<|emoji12|>", "🐈\u200d⬛": "<|emoji4|>", "🐈": "<|emoji4|>", "🐯": "<|emoji4|>", "🇯🇵": "<|emoji5|>",
    "❤\ufe0f": "<|emoji9|>", "❤": "<|emoji9|>", "1\ufe0f\u20e3": "<|emoji10|>", "⬛": "<|emoji10|>",
}  # fmt: skip


def write(folder: Path, entries: list[str] = ENTRIES) -> Path:
    """The folder, with vocab.txt and emoji.json as published ones are: no line end at the end, no tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(entries), encoding="utf8")
    (folder / "emoji.json").write_text(json.dumps({"emoji": EMOJI, "emoji_inv": SHOWN}), encoding="utf8")
    return folder


def ids_of(entries: list[str]) -> dict[str, int]:
    """Every spelling's id."""
    return {s: i for i, line in enumerate(entries) for s in ([line] if line == "," else line.split(","))}


def slow_encode(text: str, entries: list[str] = ENTRIES) -> list[int]:
    """The rules as they are told, every candidate listed and none precomputed."""
    ids = ids_of(entries)
    for old, new in ("\r\n", "\n"), ("\r", "\n"), ("\n", "<BR>"), (" ", "<SP>"), ("　", "<SP>"), ("\t", "<TAB>"):
        text = text.replace(old, new)
    text = text.replace("—", "ー").replace("−", "ー")
    for emoji, token in EMOJI.items():
        text = text.replace(emoji, token)
    found, position, longest = [], 0, max(map(len, ids)) + 1
    while position < len(text):
        rest = text[position:]
        candidates = [
            rest[:n] for n in range(min(longest, len(rest)) if rest[0] == "<" else 3, 0, -1) if rest[:n] in ids
        ]
        special = [c for c in candidates if c[0] == "<" and len(c) > 2]
        if special or candidates:
            best = special[0] if special else min(candidates, key=lambda c: ids[c])
            found.append(ids[best])
            position += len(best)
            continue
        code = rest[0].encode().hex()
        if any(
            a <= code <= b
            for a, b in (("c2a1", "c2bf"), ("c780", "c783"), ("cab9", "cbbf"), ("cc80", "cda2"))
            if len(code) == 4
        ):
            found.append(ids["<KIGOU>"])
        elif len(code) == 6 and "e28080" <= code <= "e2b07f":
            found.append(ids["<U2000U2BFF>"])
        else:
            found += [ids[f"<|byte{value}|>"] for value in rest[0].encode()]
        position += 1
    return found


def is_lossless(text: str, encoding: SubwordEncoding) -> bool:
    """What the module says about the texts that come back."""
    first = {s: encoding.entries[i].split(",")[0] if s != "," else s for s, i in encoding.ids.items()}
    longest = max(map(len, first))
    parts = {text[a:b] for a in range(len(text)) for b in range(a + 1, min(len(text), a + longest) + 1)}
    return (
        not any(c in "　\r—−" or 0xD800 <= ord(c) < 0xE000 for c in text)
        and all(first[part] == part for part in parts & first.keys())
        and not parts & set(SPECIALS)
        and all(shown == SHOWN[token] for shown, token in EMOJI.items() if shown in text)
        and all(c in first or c in "ǀ‖" or not _is_symbol(ord(c)) for c in encoding.prepare(text))
    )


def _is_symbol(code: int) -> bool:
    return any(a <= code <= b for a, b in ((0xA1, 0xBF), (0x1C0, 0x1C3), (0x2B9, 0x362), (0x2000, 0x2BFF)))

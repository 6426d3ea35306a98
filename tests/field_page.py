"""What the code says for docs/field.md: the table of characters, and the nine filters with their limits.

As a module it writes the table of characters into the page:

    python -m tests.field_page
"""

import re
import unicodedata
from pathlib import Path

from course_lib.corpus.config import FilterConfig
from course_lib.corpus.filters import FILTERS
from course_lib.japanese.normalize import normalize
from course_lib.paths import REPOSITORY

PAGE = REPOSITORY / "docs/field.md"
# The table of characters stands between these comments.
BEGIN, END = "<!-- characters: tests/field_page.py -->\n\n", "<!-- end of characters -->"
# Typed text, and what is telling in it.
CHARACTERS = (
    ("10〜20人", "wave dash U+301C between numbers"),
    ("10～20人", "full-width tilde U+FF5E between numbers"),
    ("ラ〜メン", "wave dash U+301C that lengthens a vowel"),
    ("ラ～メン", "full-width tilde U+FF5E that lengthens a vowel"),
    ("最高〜！", "wave dash U+301C at the end"),
    ("ユ－ザ－", "full-width hyphen U+FF0D behind kana"),
    ("１－２", "full-width hyphen U+FF0D between digits"),
    ("−１０", "minus sign U+2212"),
    ("だが——それ", "em dashes U+2014"),
    ("すごーーい", "long-vowel mark U+30FC, twice"),
    ("ＡＢ１２", "full-width letters and digits"),
    ("（笑）", "full-width brackets"),
    ("ﾊﾟﾝ｡", "half-width kana and full stop"),
    ("か\u3099", "kana and combining voice mark U+3099"),
    ("あ゛", "voice mark U+309B that no kana takes"),
    ("ラー\u3000メン", "ideographic space U+3000"),
    ("日本 Python", "space between Japanese and Latin"),
    ("a\u200bb", "zero-width space U+200B"),
    ("…", "ellipsis U+2026"),
    ("①", "circled digit U+2460"),
    ("㈱", "company sign U+3231"),
    ("㍻", "era name U+337B"),
    ("Ⅳ", "Roman numeral U+2163"),
    ("㎞", "unit in one character U+339E"),
    ("10⁻³", "superscripts"),
    ("￥500", "full-width yen sign U+FFE5"),
    ("髙", "variant of 高, U+9AD9"),
    ("\ufa19", "compatibility ideograph U+FA19 of 神 (U+795E)"),
    ("辻\U000e0100", "kanji with variation selector U+E0100"),
    ("𠮷", "kanji outside 16 bits, U+20BB7"),
    ("▁", "block U+2581, sentencepiece's sign for a space"),
)


def characters() -> str:
    """The table of characters, what `normalize` and NFKC make of each text, and an empty line."""
    rows = ["| typed | what | `normalize` | NFKC |", "|---|---|---|---|"]
    for typed, what in CHARACTERS:
        forms = (normalize(typed), unicodedata.normalize("NFKC", typed))
        cells = (shown(typed), what, *("unchanged" if form == typed else shown(form) for form in forms))
        rows.append(f"| {' | '.join(cells)} |")
    return "".join(f"{row}\n" for row in [*rows, ""])


def shown(text: str) -> str:
    """A text for a cell; marks, spaces and invisible characters as code points: `か` U+3099."""
    pieces = re.findall(r"[MZC]+|[^MZC]+", "".join(unicodedata.category(character)[0] for character in text))
    cells, start = [], 0
    for piece in pieces:
        part, start = text[start : start + len(piece)], start + len(piece)
        if piece[0] in "MZC":
            cells += [f"U+{ord(character):04X}" for character in part]
        else:
            cells.append(f"`{part}`")
    return " ".join(cells)


def filters() -> list[list[str]]:
    """Name and limit of each filter, in the order in which they run, as the page's table has them."""
    return [[f"`{each.name}`", f"`{each.setting}`", each.limit(FilterConfig())] for each in FILTERS]


def write(page: Path = PAGE) -> None:
    """Put the table of characters into the page."""
    before, _, rest = page.read_text(encoding="utf8").partition(BEGIN)
    page.write_text(before + BEGIN + characters() + END + rest.partition(END)[2], encoding="utf8")


if __name__ == "__main__":
    write()

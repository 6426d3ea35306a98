"""Plain text from the notation of Aozora Bunko, a library of Japanese literature: ruby, notes, gaiji, accents.

The notation: https://www.aozora.gr.jp/annotation/ (注記一覧). Characters that Shift_JIS lacks (gaiji) are notes with
their place in JIS X 0213 or in Unicode: https://www.aozora.gr.jp/annotation/external_character.html. Accented letters
are a letter and a mark: https://www.aozora.gr.jp/accent_separation.html.
"""

import re
import unicodedata
from collections import Counter

from course_lib.language.words import tr_noop

# What a note may contain: anything in its line, with further square brackets one level deep.
WITHIN = "(?:[^［］\n]|［[^［］\n]*］)*"
# A note that stands for a character, ※［＃「てへん＋劣」、第3水準1-84-77］. Group 1 is its description.
GAIJI = re.compile(f"※［＃({WITHIN})］")
NOTE = re.compile(f"［＃{WITHIN}］")
# The place of a character: plane, row and cell of JIS X 0213, behind its level or at the end; or its code point.
PLANE_ROW_CELL = re.compile(
    "第[34]水準([12]-[0-9]{1,2}-[0-9]{1,2})(?=$|[、，])|(?:^|[^0-9-])([12]-[0-9]{1,2}-[0-9]{1,2})$"
)
CODE_POINT = re.compile(r"U\+([0-9A-Fa-f]{4,6})")
# Text in two small columns within the line of print, 割り注. It often stands in brackets already.
INSET = re.compile("(（?)［＃割り注］(.*?)［＃割り注終わり］(）?)")
RUBY = re.compile("《[^《》\n]*》")
# The sign before the characters that have ruby: 霧の｜ロンドン警視庁《スコットランドヤード》.
RUBY_BEGINS = re.compile("｜(?=[^｜《》\n]*《)")
ACCENTED = re.compile("〔([^〔〕\n]*)〕")
# Letters that Unicode does not compose of a letter and a mark.
LETTERS = {
    "AE&": "Æ", "ae&": "æ", "OE&": "Œ", "oe&": "œ", "s&": "ß", "O/": "Ø", "o/": "ø", "D/": "Đ", "d/": "đ", "L/": "Ł",
    "l/": "ł", "H/": "Ħ", "h/": "ħ", "!@": "¡", "?@": "¿",
}  # fmt: skip
MARKS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", ":": "\u0308", "&": "\u030a", ",": "\u0327",
    "_": "\u0304",
}  # fmt: skip
# A letter and its mark. Apostrophes, as in French l'un and qu'on, and commas and colons before a space are no marks.
ACCENT = re.compile(
    "|".join(map(re.escape, LETTERS))
    + "|(?!(?<=[Qq])u')[AEIOUYaeiouy]'|[A-Za-z](?:[`^~&_]|:(?=[A-Za-z]))|[CcSsTt],(?=[A-Za-z])"
)
# Signs of the notation that a gaiji note may name as characters of the text: ※［＃始め二重山括弧、1-1-52］ is a 《.
# They have code points for private use until the notation is gone.
SIGNS = "《》｜※［］〔〕＃"
HIDE = {ord(sign): 0xE000 + number for number, sign in enumerate(SIGNS)}
HIDDEN = re.compile(f"[{chr(min(HIDE.values()))}-{chr(max(HIDE.values()))}]")
# くの字点, an iteration mark of double length, is two or three characters of Shift_JIS.
ITERATION = {"／″＼": "〴〵", "／＼": "〳〵"}
# The lines of tables and brackets around several lines, but not ─ and ━, which prose has as dashes.
BOXES = re.compile("[│┃┌-╋]")
SPACES = re.compile("[ \t\u3000]{2,}")
# A line with a letter or digit, or with speech such as 「……」. Others are decoration: ＊　＊　＊.
HAS_WORDS = re.compile(r"\w|^[「『]")

# Counts in the report.
GAIJI_FOUND = tr_noop("gaiji written as Unicode characters")
GAIJI_LOST = tr_noop("gaiji without a known character, removed")
READINGS = tr_noop("ruby readings removed")
NOTES = tr_noop("notes removed")
ACCENTS = tr_noop("accented letters composed")
DECORATION = tr_noop("lines without a letter removed")


def plain(text: str, counts: Counter[str]) -> str:
    """Return a text without its notation, without empty lines and indentation; count what was removed, by kind."""
    text = GAIJI.sub(lambda note: _gaiji(note[1], counts), text)
    text, readings = RUBY.subn("", RUBY_BEGINS.sub("", text))
    text = INSET.sub(_inset, text)
    text, notes = NOTE.subn("", text)
    text = ACCENTED.sub(lambda brackets: _accented(brackets, counts), text)
    for written, mark in ITERATION.items():
        text = text.replace(written, mark)
    counts[READINGS] += readings
    counts[NOTES] += notes
    lines = [SPACES.sub(_one_space, line).strip() for line in BOXES.sub("\u3000", text).split("\n")]
    kept = list(filter(HAS_WORDS.search, lines))
    counts[DECORATION] += sum(map(bool, lines)) - len(kept)
    # Not by str.translate, which takes ten times as long.
    return HIDDEN.sub(lambda hidden: SIGNS[ord(hidden[0]) - 0xE000], "\n".join(kept))


def _one_space(spaces: re.Match[str]) -> str:
    return "\u3000" if "\u3000" in spaces[0] else " "


def _inset(inset: re.Match[str]) -> str:
    """Return a text in two small columns in brackets: （中世の武士）."""
    before, text, after = inset.groups()
    return f"（{text}）" if not (before and after) else inset[0]


def _gaiji(description: str, counts: Counter[str]) -> str:
    """Return the character that a gaiji note describes, "" if it has no code."""
    character = unicode_of(description)
    counts[GAIJI_FOUND if character else GAIJI_LOST] += 1
    return character.translate(HIDE)


def unicode_of(description: str) -> str:
    """Return the character for a description such as 「口＋世」、U+546D or 「てへん＋劣」、第3水準1-84-77; "" if none.

    A place in JIS X 0213 may be two code points in Unicode: か゚ has its mark as a character of its own.
    """
    if place := PLANE_ROW_CELL.search(description):
        plane, row, cell = map(int, (place[1] or place[2]).split("-"))
        if 1 <= row <= 94 and 1 <= cell <= 94:
            # EUC-JIS-2004 has the second plane behind a single shift, 0x8F.
            code = bytes([0x8F] * (plane - 1) + [0xA0 + row, 0xA0 + cell])
            return code.decode("euc_jis_2004", "ignore")
    elif point := CODE_POINT.search(description):
        number = int(point[1], 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else ""
    return ""


def _accented(brackets: re.Match[str], counts: Counter[str]) -> str:
    """Return a text with its accents and without the brackets; with them, if they are brackets of the book."""
    text, accents = ACCENT.subn(_letter, brackets[1])
    if text == brackets[1]:
        return brackets[0]
    counts[ACCENTS] += accents
    return text


def _letter(pair: re.Match[str]) -> str:
    if pair[0] in LETTERS:
        return LETTERS[pair[0]]
    letter = unicodedata.normalize("NFC", pair[0][0] + MARKS[pair[0][1]])
    # No such letter exists in Unicode: the mark is punctuation.
    return letter if len(letter) == 1 else pair[0]

"""A work of Aozora Bunko: the header, text and colophon of its file, its rights and its orthography.

A file has the title and the persons, an empty line, a block between two lines of hyphens that explains the notation,
the text, and a colophon that begins with 底本： (https://www.aozora.gr.jp/KOSAKU/txt_chu_kigo.html).
"""

import re
from collections import Counter
from dataclasses import dataclass

from course_lib.corpus.aozora_notation import plain
from course_lib.corpus.dedup import code_points
from course_lib.documents import with_newlines
from course_lib.language.words import tr_noop

# A header with more lines is none: the file has no empty line behind the persons.
LONGEST_HEADER = 12
EMPTY_LINE = re.compile("\n[ \t\u3000]*\n")
# The block that explains the notation, and what each of its wordings has.
HYPHENS = "-{9,}[^\n]*\n"
BLOCK = re.compile(f"\\s*(?:{HYPHENS})?((?:(?!{HYPHENS}).*\n){{1,60}}?){HYPHENS}")
EXPLAINS = re.compile("記号について|表記について|：ルビ|入力者注")
# The line that begins the colophon. New translations have the end of their text marked before it.
COLOPHON = re.compile(
    "^[\u3000 =]*(?:［＃本文終わり］|(?:翻訳の)?(?:底本|定本)(?:・初出)?[\u3000 ]*[：:「]|入力者注$)", re.MULTILINE
)
# What the colophon says of a work that is not in the public domain: a license, or that the holder of its copyright
# gave it. Of 17,436 files 249 say so; all others but 4 say that volunteers made them (ボランティアの皆さん).
RIGHTS = re.compile("クリエイティブ・コモンズ|creativecommons|著作権(?:継承)?者(?:自ら)?の意思により")
# Translators and editors are the last lines of a header. A title in the original language has no Japanese letter.
TRANSLATOR = re.compile("(?:[訳譯][註注]?|[\u3000 ]やく)$")
EDITOR = re.compile("(?:[編校]|編集|編輯|編纂|校訂|校閲|校註|校注)$")
JAPANESE = re.compile("[ぁ-んァ-ヶ一-龠々]")
# Spellings that only the old orthography has. It writes the small kana large.
OLD_FORMS = re.compile("[ゐゑゝゞ]|でせう|ませう|言ふ|思ふ|やうに|やうな|であつ|なつた|だつた|といふ")
SMALL_KANA = re.compile("[っゃゅょ]")
# First and last code points.
HIRAGANA, KATAKANA, KANA_AND_KANJI = ("ぁ", "ん"), ("ァ", "ヶ"), ("ぁ", "鿿")
# Latin, Greek and Cyrillic.
FOREIGN = ("A", "ӿ")
# Limits of `is_new`, chosen on Aozora Bunko's own list of 13,713 works (tests/bench/README.md).
MOST_OLD_FORMS, LEAST_SMALL_KANA, MOST_KATAKANA = 0.008, 0.002, 0.4

NO_HEADER = tr_noop("files without a header")
NO_COLOPHON = tr_noop("files without a colophon")
REPLACED_BYTES = tr_noop("bytes that are no Shift_JIS, replaced by U+FFFD")
UTF8 = tr_noop("files in UTF-8")


@dataclass
class Work:
    """A work without the notation of its file."""

    title: str = ""
    subtitle: str = ""
    author: str = ""
    translator: str = ""
    # The last line of the header: the translator's in a translation, otherwise the author's.
    byline: str = ""
    text: str = ""
    is_public_domain: bool = True  # whether the colophon names no license and no holder of the copyright


def decode(content: bytes, counts: Counter[str]) -> str | None:
    """Return the text of a file in Shift_JIS, as Windows extends it, or in UTF-8; None if it is in neither.

    Single damaged characters become U+FFFD: one of the archive's 17,436 files has one.
    """
    try:
        text = content.decode("utf-8-sig")
        counts[UTF8] += not content.isascii()
    except UnicodeDecodeError:
        # No Japanese text in Shift_JIS is valid UTF-8: its kana begin with bytes that only continue a character there.
        text = content.decode("cp932", "replace")
        if (bad := text.count("\ufffd")) > len(text) / 1000 + 1:
            return None
        counts[REPLACED_BYTES] += bad
    return with_newlines(text)


def read_work(text: str, counts: Counter[str]) -> Work:
    """Return the work in the text of a file, and count what was resolved or removed."""
    header, body = _split_header(text.lstrip("\n"), counts)
    block = BLOCK.match(body)
    if block and EXPLAINS.search(block[1]):
        body = body[block.end() :]
    colophon = COLOPHON.search(body)
    counts[NO_COLOPHON] += not colophon
    body, after = (body[: colophon.start()], body[colophon.start() :]) if colophon else (body, body)
    work = persons(header)
    work.text, work.is_public_domain = plain(body, counts), not RIGHTS.search(after)
    return work


def _split_header(text: str, counts: Counter[str]) -> tuple[list[str], str]:
    """Return the lines of the header, and what follows it."""
    head, *rest = EMPTY_LINE.split(text, maxsplit=1)
    # Some files have no empty line before the block that explains the notation.
    above, *block = re.split(f"^(?={HYPHENS})", head, maxsplit=1, flags=re.MULTILINE)
    lines = plain(above, Counter()).split("\n")
    if not rest or len(lines) > LONGEST_HEADER or not lines[0]:
        counts[NO_HEADER] += 1
        return [], text
    return lines, "\n\n".join(block + rest)


def persons(header: list[str]) -> Work:
    """Return a work with what its header names: title, subtitle, author, translator.

    The lines are title, original title, subtitle, its original, author, and translators or editors; all but the title
    may be missing. Aozora Bunko's converter to HTML tells them apart in the same way
    (github.com/aozorahack/aozora2html, lib/aozora2html/header.rb).
    """
    if not header:
        return Work()
    title, *lines = header
    byline = lines[-1] if lines else ""
    others: list[str] = []
    # An editor stands between author and translator; alone, an editor is the person of the work.
    while len(lines) > 1 and (TRANSLATOR.search(lines[-1]) or (others and EDITOR.search(lines[-1]))):
        others.insert(0, lines.pop())
    author = lines.pop() if lines else ""
    if TRANSLATOR.search(author) and not others:
        author, others = "", [author]
    subtitle = "\u3000".join(line for line in lines if JAPANESE.search(line))
    return Work(title, subtitle, author, "\u3000".join(filter(TRANSLATOR.search, others)), byline)


def is_japanese(text: str) -> bool:
    """Return whether a text has more kana and kanji than Latin, Greek and Cyrillic letters."""
    return _between(text, *KANA_AND_KANJI) > _between(text, *FOREIGN)


def is_new(text: str) -> bool:
    """Return whether a text is in the orthography of today (新仮名), and not in katakana as decrees once were.

    Against Aozora Bunko's own list: of the works called new 99.4 % are, and 98.0 % of the new works are found.
    """
    return (
        len(OLD_FORMS.findall(text)) < MOST_OLD_FORMS * len(text)
        and len(SMALL_KANA.findall(text)) > LEAST_SMALL_KANA * _between(text, *HIRAGANA)
        and _between(text, *KATAKANA) < MOST_KATAKANA * len(text)
    )


def _between(text: str, first: str, last: str) -> int:
    """Return the number of characters from `first` to `last` in the order of code points."""
    codes = code_points(text)
    return int(((codes >= ord(first)) & (codes <= ord(last))).sum())

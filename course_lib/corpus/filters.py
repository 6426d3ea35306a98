"""Quality filters for Japanese web text. Each filter compares one property of a document with one limit.

The limits were chosen on hand-labeled pages and on novels. The filters do not judge grammar or topic.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from course_lib.corpus.config import REPEATED, FilterConfig
from course_lib.corpus.dedup import code_points, gram_hashes

URL = re.compile(r"(?:https?://|www\.)[\w!-;=?-~]+", re.A)
# A sentence end anywhere in the line, or the end of an informal line: a quotation mark, laughter, a particle, an emoji.
SENTENCE = re.compile(
    r"[。！？!?…‥♪]|・・|[」』｣ｗw笑涙~〜～ーっよねぇ\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]\W{0,10}$"
)
# Full stops of papers and of half-width texts: ．, ｡ and the ASCII period. At the end of a line, ．and ｡ must follow a
# Japanese letter or a bracket. Elsewhere, ｡ must follow kana, because garbled text and emoticons contain it, too. Other
# periods are part of numbers, dates, addresses and menus, unless ten characters without space are before them that end
# like a verb, an adjective or a bracket.
LETTER = r"ぁ-ゟァ-ヺー一-龠々)）\]］」』｣"
OTHER_STOP = (
    rf"(?<=[ぁ-ゟァ-ヺーｦ-ﾝ)）」』｣])｡|(?<=[ｶ-ﾎ][ﾞﾟ])｡|(?<=[{LETTER}])[．｡]$"
    r"|(?<=[^\s.．]{9}[うくぐすつぬぶむるいただんねよか)）\]］])[.．](?![0-9A-Za-z０-９Ａ-Ｚａ-ｚ.．/])"
)
OTHER_SENTENCE = re.compile(OTHER_STOP)
# Separators in menus, rows of links and keyword lists.
SEPARATED = re.compile(r"[|｜>＞»«＜]|　.*　| \S+ \S+ ")
# Phrases in headers, footers and menus. `re` finds these patterns quickly because each choice begins with a letter.
FRAME = re.compile(
    r"Copyright|©|\(C\)|All [Rr]ights [Rr]eserved|無断転載|JavaScriptを有効|トラックバック|この記事を?シェア"
    r"|コメントを書く|ページの?(?:先頭|トップ)へ|続きをお?読|もっと見る|ランキングに参加|アカウントをお持ち"
    r"|クッキーを使用し(?:てい|ており)?ます|Cookie[）)]? ?を使用し(?:てい|ており)?ます"
    r"|cookie ?を使用し(?:てい|ており)?ます"
)
# Topics of headers, footers and menus, about which people also write.
TOPIC = re.compile(
    r"利用規約|プライバシーポリシー|個人情報の取り扱い|サイトマップ|ログイン|会員登録|パスワード|お問い合わせ"
    r"|次の記事|前の記事|クッキー[（(]Cookie[）)]|クッキーの使用|クッキーを使用|Cookie ?を使用|cookie ?を使用"
)
# A sentence of at least 27 characters about such a topic is prose if it does not speak to visitors. Measured on
# tests/corpus/topics.py: 27 characters keep 10 of 73 lines of page frames and remove none of 71 lines of prose; 30 keep
# 9 and remove 6. Length alone does not separate them: 27 characters keep 35 of the frames.
FULL_SENTENCE = re.compile(rf"[^。｡！？!?|｜＞>»«＜]{{26,}}(?:[。！？!?]|{OTHER_STOP})")
# Words with which a site speaks to its visitors: polite forms, the names of itself and of its parts.
TO_VISITORS = re.compile(
    r"こちら|下記|[弊当]社|お客様|の方は|いただ|ございま|ご(?:覧|[一-龠]{2})|お(?!問)[一-龠][いきけせびみめりれ]|(?<![ァ-ヺー])フォーム"
    r"|[当本](?:サイト|ウェブ|ページ|ホームページ|ブログ|サービス)|このページ|このブログ|メールフォーム|同意(?:します|のうえ|の上|した(?:もの|こと))"
    r"|(?:入力|クリック).*(?:ください|下さい)"
)
# Characters with white space; in a longer line, these phrases and topics are part of prose.
FRAME_LENGTH = 100
# Characters with white space; a shorter line without a sentence end is never prose.
PROSE_LENGTH = 6
# Share; a line without a sentence end but with at least this much hiragana is prose (verse, old spelling).
PROSE_HIRAGANA = 0.4


class Kind(IntEnum):
    """Character classes that the filters distinguish."""

    OTHER = 0  # symbols and emoji
    HIRAGANA = 1
    KATAKANA = 2
    KANJI = 3
    LETTER = 4  # a letter of any other script
    DIGIT = 5
    PUNCTUATION = 6
    GARBLED = 7  # typical results of reading UTF-8 text in another encoding


# Class → character ranges, separated by spaces.
RANGES: tuple[tuple[Kind, str], ...] = (
    (Kind.HIRAGANA, "ぁ-ゟ"),
    (Kind.KATAKANA, "ァ-ヺ ー-ヿ ㇰ-ㇿ ｦ-ﾟ"),
    (Kind.KANJI, "㐀-䶿 一-鿿 豈-\ufaff \U00020000-\U0003ffff 々-〇"),
    (Kind.LETTER, "Ａ-Ｚ ａ-ｚ \uac00-\ud7a3"),
    (Kind.DIGIT, "0-9 ０-９"),
    (Kind.PUNCTUATION, "、-。 〈-】 〔-〛 〜-〜 ・-・ ！-！ ，-， ．-． ：-； ？-？ （-） ［-［ ］-］ ｛-｛ ｝-｝ "
                       "～-～ ｡-･ ‐-‧ !-! \"-\" '-) ,-. :-; ?-?"),
    (Kind.GARBLED, "\ufffd-\ufffd 縺-縺 繧-繧 繝-繝 縲-縲 ã-ã ‚-‚ ¤-¤ 銇-銈 銆-銆"),
)  # fmt: skip


class Document(NamedTuple):
    """A text with values that several filters share, computed once."""

    lines: list[str]
    text: str  # without whitespace
    codes: npt.NDArray[np.uint32]  # the code points of `text`
    kinds: list[int]  # number of characters of each Kind


class Filter(NamedTuple):
    """A quality filter: its measure and the name of its setting, in which min_ or max_ says what the limit is."""

    name: str
    setting: str
    measure: Callable[[Document], float]

    @property
    def is_minimum(self) -> bool:
        """Whether the limit is a minimum, so that documents below it are removed; otherwise those above it."""
        return self.setting.startswith("min_")

    def removes(self, value: float, settings: FilterConfig) -> bool:
        """Return whether the filter removes a document with this value."""
        limit: float = getattr(settings, self.setting)
        return value < limit if self.is_minimum else value > limit

    def limit(self, settings: FilterConfig) -> str:
        """Return the condition for removing a document, such as '< 80', for reports."""
        return f"{'<' if self.is_minimum else '>'} {getattr(settings, self.setting)}"


def _japanese(document: Document) -> float:
    japanese = sum(document.kinds[Kind.HIRAGANA : Kind.KANJI + 1])
    return _share(japanese, japanese + document.kinds[Kind.LETTER])


def _hiragana(document: Document) -> float:
    return _share(document.kinds[Kind.HIRAGANA], sum(document.kinds[Kind.HIRAGANA : Kind.KANJI + 1]))


def _prose(document: Document) -> float:
    # With white space, as is_prose judges lines.
    lengths = [(len(line), is_prose(line)) for line in document.lines]
    return _share(sum(length for length, prose in lengths if prose), sum(length for length, _ in lengths))


def _links(document: Document) -> float:
    return _share(sum(map(len, URL.findall("\n".join(document.lines)))), len(document.text))


def _repetition(document: Document) -> float:
    if len(document.codes) <= REPEATED:
        return 0.0
    hashes = np.sort(gram_hashes(document.codes, REPEATED))
    return int(np.count_nonzero(hashes[1:] == hashes[:-1])) / len(hashes)


def _kind_share(kind: Kind) -> Callable[[Document], float]:
    return lambda document: _share(document.kinds[kind], len(document.text))


# In the order in which they run; the first filter that removes a document is reported as the reason.
FILTERS = (
    Filter("too_short", "min_chars", lambda document: len(document.text)),
    Filter("garbled", "max_garbled", _kind_share(Kind.GARBLED)),
    Filter("not_japanese", "min_japanese", _japanese),
    Filter("links", "max_links", _links),
    Filter("digits", "max_digits", _kind_share(Kind.DIGIT)),
    Filter("symbols", "max_symbols", _kind_share(Kind.OTHER)),
    Filter("repetition", "max_repetition", _repetition),
    Filter("boilerplate", "min_prose", _prose),
    Filter("little_hiragana", "min_hiragana", _hiragana),
)


def measures(text: str) -> dict[str, float]:
    """Return the value that each filter measures for a text, by filter name."""
    document = _document(text)
    return {each.name: each.measure(document) for each in FILTERS}


def first_failure(text: str, settings: FilterConfig) -> tuple[str, float] | None:
    """Return the first filter that removes the text, and the measured value; None if the text is kept."""
    document = _document(text)
    for each in FILTERS:
        value = each.measure(document)
        if each.removes(value, settings):
            return each.name, value
    return None


def is_prose(line: str) -> bool:
    """Return whether a line reads like prose rather than a menu, a row of links, a footer or a keyword list."""
    line = line.strip()
    if len(line) <= FRAME_LENGTH and _is_frame(line):
        return False
    if SENTENCE.search(line) or OTHER_SENTENCE.search(line):
        return True
    if len(line) < PROSE_LENGTH or SEPARATED.search(line):
        return False
    return sum("ぁ" <= character <= "ゟ" for character in line) >= PROSE_HIRAGANA * len(line)


def _is_frame(line: str) -> bool:
    """Return whether a short line belongs to a header, a footer or a menu, judged by its words."""
    if FRAME.search(line):
        return True
    return TOPIC.search(line) is not None and (not FULL_SENTENCE.search(line) or TO_VISITORS.search(line) is not None)


def _document(text: str) -> Document:
    dense = "".join(text.split())
    codes = code_points(dense)
    kinds = np.bincount(_table()[codes], minlength=len(Kind)).tolist()
    return Document(text.split("\n"), dense, codes, kinds)


@cache
def _table() -> npt.NDArray[np.uint8]:
    """Return the lookup table from code point to Kind, 1.1 MB, built once per process."""
    table = np.zeros(0x110000, dtype=np.uint8)
    for code in range(0x3000):
        if chr(code).isalpha():
            table[code] = Kind.LETTER
    for kind, ranges in RANGES:
        # An item is a range such as "a-z".
        for item in ranges.split():
            table[ord(item[0]) : ord(item[2]) + 1] = kind
    return table


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

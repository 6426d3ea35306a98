"""Normalization: one form for each of the many ways the same Japanese text is typed.

neologdn does the work (half-width kana, full-width ASCII, runs of ー and 〜, spaces between Japanese characters). This module settles
what neologdn leaves alone and a corpus cannot use: other white space, control characters, か + ゙ apart, and ▁, which sentencepiece
keeps for itself. It is not NFKC: ①, ㈱ and Ⅳ stay as they are.

neologdn's rules (github.com/neologd/mecab-ipadic-neologd/wiki/Regexp.ja) take every dash such as － and ― for a long-vowel mark ー, and
delete every 〜, wherever they are. But a vowel can be lengthened only behind a kana (JIS X 4051 and the Cabinet notice 外来語の表記,
1991, know ー only there). So the characters beside a sign decide:

* A dash behind a kana is neologdn's ー (ユ－ザ－), unless a digit follows (は－１０℃). Every other dash becomes - (882年－912年).
* Two or more of ― — ─ are the dash of punctuation and become ―― everywhere (だが――それ).
* A wave beside a digit becomes ~ (10〜20人), and so does one between two words that is not behind a kana (東京〜大阪, A〜Z) or that
  joins two names in katakana (パリ〜ニース). Every other wave is deleted (すご〜〜い, ラ〜メン, 〜だった〜).
"""

import re
import unicodedata

import neologdn

WHITE = re.compile(
    r"[^\S\n ]|\u200b|\ufeff|\u00ad"
)  # every white space but line breaks and spaces; invisible separators
CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x9f\u200e\u200f\u202a-\u202e\u2060\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
KANA = "ぁ-ゖ\u3099-ゟァ-ヺー-ヿㇰ-ㇿｦ-ﾟ"
# what neologdn takes for ー and for 〜
DASHES, WAVES = "﹣－—―─━", "~〜～∼∾〰"
# at its start a class of characters, which `re` finds fast
SIGN = re.compile(f"[{DASHES}{WAVES}]")
DASH = re.compile(rf"(?<![{KANA}{DASHES}])[{DASHES}]+|(?<=[{KANA}])[{DASHES}]+(?=\d)")
LONG_DASH = re.compile("[—―─]{2,}")
# stands for ―― while neologdn replaces the others; no character of any text
KEPT = "\ufdd0"
# waves with spaces between them count as one
WAVE = re.compile(f"[{WAVES}]+(?:[ \u3000]+[{WAVES}]+)*")
BEHIND_WORD = re.compile(rf"(?:[^\W_{KANA}]|[％%℃）)」』])$")
BEFORE_WORD = re.compile(r"(?:[^\W_ぁ-ゖ\u3099-ゟー-ヿｰﾞﾟ]|[「『])")
BEHIND_NAME = re.compile("[ァ-ヺー][アイウエオ-ヂツ-モヤユヨ-ロワ-ヴー]$")
BEFORE_NAME = re.compile("[アイウエオ-ヂツ-モヤユヨ-ロワ-ヴ][ァ-ヺー]{2}")
# 学習〜 次: a space behind the wave and none before it. neologdn deletes this space, so it is not found a second time
PHRASE_END = re.compile("[ \u3000]+[、-ヿ一-\u9fff！-\uffef]")
NUMBER = re.compile(r"[-+−－＋±]?\d")
VOICED = re.compile("[ぁ-ヿ][\u3099\u309a]")  # a kana and its mark apart


def normalize(text: str) -> str:
    """The normal form of a text of any number of lines; line breaks stay.

    The result holds no white space but single spaces and line breaks, no control characters and no '▁' (it becomes '_').
    """
    if not text.isprintable() or "▁" in text:  # isprintable is a fast first look: no white space but " ", no controls
        text = CONTROL.sub("", WHITE.sub(" ", text.replace("\r\n", "\n"))).replace("▁", "_")
    normal = "\n".join(map(_line, text.split("\n")))
    if "\u3099" in normal or "\u309a" in normal:
        normal = VOICED.sub(lambda match: unicodedata.normalize("NFC", match[0]), normal)
    return normal


def _line(line: str) -> str:
    if not SIGN.search(line):
        return str(neologdn.normalize(line))
    line = WAVE.sub(_wave, DASH.sub("-", LONG_DASH.sub(KEPT, line)))
    return str(neologdn.normalize(line, tilde="normalize")).replace(KEPT, "――")


def _wave(match: re.Match[str]) -> str:
    """'~' for a wave that says something, '' for one that neologdn deletes: the module's text has the rule."""
    text, start, end = match.string, match.start(), match.end()
    before, after = text[max(0, start - 3) : start].rstrip(" \u3000"), text[end : end + 4].lstrip(" \u3000")
    if before.endswith("/") or before[-1:].isdecimal() or NUMBER.match(after):
        return "~"
    if PHRASE_END.match(text, end) and before.endswith(text[start - 1]):
        return ""
    between_words = BEHIND_WORD.search(before) and BEFORE_WORD.match(after)
    between_names = BEHIND_NAME.search(before) and BEFORE_NAME.match(after)
    return "~" if between_words or between_names else ""

"""Normalization of Japanese text, so that different ways of typing the same text give the same result.

neologdn normalizes half-width kana, full-width ASCII, runs of ー and 〜, and spaces between Japanese characters. This
module handles what neologdn does not: other whitespace, control characters, a kana followed by a separate voiced sound
mark (か + ゙), and ▁, which sentencepiece reserves for itself. The result is not NFKC: ①, ㈱ and Ⅳ are left unchanged.

neologdn's rules (github.com/neologd/mecab-ipadic-neologd/wiki/Regexp.ja) turn every dash, such as － and ―, into the
long-vowel mark ー, and delete every 〜. But a vowel can be lengthened only after a kana: JIS X 4051 and the Cabinet
notice 外来語の表記 (1991) use ー only there. In this module, the characters next to a dash or wave therefore decide:

* A dash after a kana becomes ー, as in neologdn (ユ－ザ－), unless a digit follows (は－１０℃). Every other dash
  becomes - (882年－912年).
* Two or more of ― — ─ are a punctuation dash and become ―― everywhere (だが――それ).
* A wave next to a number (10〜20人) or after a slash becomes ~. So does a wave between two words that is not after a
  kana (東京〜大阪, A〜Z), and a wave between two names in katakana (パリ〜ニース). Every other wave is deleted
  (すご〜〜い, ラ〜メン, 〜だった〜).
"""

import re
import unicodedata

import neologdn

# All whitespace except line breaks and spaces, plus invisible separators.
WHITE = re.compile(r"[^\S\n ]|\u200b|\ufeff|\u00ad")
CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x9f\u200e\u200f\u202a-\u202e\u2060\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
KANA = "ぁ-ゖ\u3099-ゟァ-ヺー-ヿㇰ-ㇿｦ-ﾟ"
# The characters that neologdn treats as ー and as 〜.
DASHES, WAVES = "﹣－—―─━", "~〜～∼∾〰"
# This pattern begins with a character class, which `re` finds quickly.
SIGN = re.compile(f"[{DASHES}{WAVES}]")
DASH = re.compile(rf"(?<![{KANA}{DASHES}])[{DASHES}]+|(?<=[{KANA}])[{DASHES}]+(?=\d)")
LONG_DASH = re.compile("[—―─]{2,}")
# Stands for ―― while neologdn changes the other dashes. U+FDD0 is a noncharacter, which `CONTROL` removes from any
# text.
KEPT = "\ufdd0"
# Waves with spaces between them count as one wave.
WAVE = re.compile(f"[{WAVES}]+(?:[ \u3000]+[{WAVES}]+)*")
BEHIND_WORD = re.compile(rf"(?:[^\W_{KANA}]|[％%℃）)」』])$")
BEFORE_WORD = re.compile(r"(?:[^\W_ぁ-ゖ\u3099-ゟー-ヿｰﾞﾟ]|[「『])")
BEHIND_NAME = re.compile("[ァ-ヺー][アイウエオ-ヂツ-モヤユヨ-ロワ-ヴー]$")
BEFORE_NAME = re.compile("[アイウエオ-ヂツ-モヤユヨ-ロワ-ヴ][ァ-ヺー]{2}")
# A space after the wave and none before it: 学習〜 次. neologdn deletes this space, so normalizing the text a second
# time does not find it.
PHRASE_END = re.compile("[ \u3000]+[、-ヿ一-\u9fff！-\uffef]")
NUMBER = re.compile(r"[-+−－＋±]?\d")
# A kana and a separate (semi-)voiced sound mark.
VOICED = re.compile("[ぁ-ヿ][\u3099\u309a]")


def normalize(text: str) -> str:
    """Return the normalized text; line breaks are kept.

    The result contains no whitespace except single spaces and line breaks, and no control characters. '▁' becomes '_'.
    """
    # isprintable is a fast check: a printable text has no whitespace except " " and no control characters.
    if not text.isprintable() or "▁" in text:
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
    """Return the replacement for a wave: '~' or '', by the rules in the module docstring."""
    text, start, end = match.string, match.start(), match.end()
    before, after = text[max(0, start - 3) : start].rstrip(" \u3000"), text[end : end + 4].lstrip(" \u3000")
    if before.endswith("/") or before[-1:].isdecimal() or NUMBER.match(after):
        return "~"
    if PHRASE_END.match(text, end) and before.endswith(text[start - 1]):
        return ""
    between_words = BEHIND_WORD.search(before) and BEFORE_WORD.match(after)
    between_names = BEHIND_NAME.search(before) and BEFORE_NAME.match(after)
    return "~" if between_words or between_names else ""

"""Normalization of Japanese text, so that different ways of typing the same text give the same result.

neologdn normalizes half-width kana, full-width ASCII, and runs of ー and 〜. This module handles spaces, what neologdn
does not handle (other whitespace, control characters, the voiced sound marks of hiragana), the signs that neologdn
damages, and ▁. The result is not NFKC: ①, ㈱ and Ⅳ are left unchanged.

A space is removed if the character before or behind it is Japanese (日本 Python 会 → 日本Python会): kana, kanji, or the
punctuation of both. Letters, digits and signs of other scripts, full-width ones included, keep the spaces between them
(Café de Paris, 5 × 3, Ａ Ｂ → A B). neologdn removes a space behind any character outside ASCII.

neologdn's rules (github.com/neologd/mecab-ipadic-neologd/wiki/Regexp.ja) turn every dash, such as － and ―, into the
long-vowel mark ー, and delete every 〜. But a vowel can be lengthened only after a kana: JIS X 4051 and the Cabinet
notice 外来語の表記 (1991) use ー only there. In this module, the characters next to a dash or wave therefore decide:

* A dash after a kana becomes ー, as in neologdn (ユ－ザ－), unless a digit follows (は－１０℃). Every other dash
  becomes - (882年－912年).
* Two or more of ― — ─ are a punctuation dash and become ―― everywhere (だが――それ).
* A wave (the tilde ~ or ～, the wave dash 〜) next to a number (10〜20人) or after a slash becomes ~. So does a wave
  between two words that is not after a kana (東京〜大阪, A〜Z), and a wave between two names in katakana
  (パリ〜ニース).
* Any other wave between two kana lengthens a vowel and becomes ー (すご〜〜い → すごーい, ラ〜メン → ラーメン), but not
  behind a few kana that follow a wave for left-out words (〜から〜まで).
* Every other wave is deleted (〜だった〜, 最高〜！).

Other signs that neologdn changes: ⁻ and ₋ are no hyphens (10⁻²⁷, xₙ₋₁), ¥ and ￥ are both the yen sign ¥, ‘ becomes '
like ’, and a voiced sound mark without a kana that it voices stays ゛ or ゜ (あ゛).

▁ (U+2581) becomes _, because sentencepiece writes spaces as ▁: decoding a Unigram model's tokens would return any ▁ of
the text as a space, or drop it.
"""

import re
import unicodedata

import neologdn

from course_lib.documents import with_newlines

# All whitespace except line breaks and spaces.
WHITE = re.compile(r"[^\S\n ]")
# Control characters and invisible characters, of which U+00AD, U+200B and U+FEFF may stand inside a word. U+200D stays,
# because it joins emoji.
CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)
KANA = "ぁ-ゖ\u3099-ゟァ-ヺー-ヿㇰ-ㇿｦ-ﾟ"
# Stand for ――, ⁻, ₋ and ¥ while neologdn changes the other signs. U+FDD0 to U+FDEF are noncharacters, which `CONTROL`
# removes from any text.
PLACEHOLDERS = {"――": "\ufdd0", "⁻": "\ufdd1", "₋": "\ufdd2", "¥": "\ufdd3"}
# Unicode blocks of kana, kanji and their punctuation, without what is only Chinese or Korean, a number (㉑) or a unit
# in Latin letters (㎞); and the full-width signs that neologdn leaves full-width. Other full-width forms count as the
# ASCII characters that they become.
JAPANESE = (
    # CJK Radicals Supplement and Kangxi Radicals, CJK Symbols and Punctuation, Hiragana, Katakana, Kanbun
    "\u2e80-\u2fdf\u3001-\u30ff\u3190-\u319f"
    # Katakana Phonetic Extensions, the Japanese parts of Enclosed CJK Letters and Months and of CJK Compatibility
    "\u31f0-\u31ff\u3220-\u3247\u3280-\u32b0\u32c0-\u32cb\u32d0-\u3370\u337b-\u337f\u33e0-\u33fe"
    # CJK Unified Ideographs and Extension A, Compatibility Ideographs and Forms, half-width punctuation and katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff5f-\uff9f"
    # Kana Extended and Supplement, planes 2 and 3 (kanji)
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
    "＂＇＼｀￠-￤" + PLACEHOLDERS["――"]
)
# Unicode's marks, which belong to the character before them: combining signs and variation selectors.
MARKS = "\u0300-\u036f\u20d0-\u20ff\ufe00-\ufe0f\U000e0100-\U000e01ef"
# The characters that neologdn treats as ー and as 〜, and the signs that it damages.
DASHES, WAVES, DAMAGED = "﹣－—―─━", "~〜～∼∾〰", "⁻₋¥￥‘"
# The dashes that are left when spaces are removed become ー. The pattern begins with a literal, which is found quickly.
REMOVED_SPACE = re.compile(f" (?:(?=[{JAPANESE}])|(?<=[{JAPANESE}{DASHES}] )|(?<=[{JAPANESE}][{MARKS}] ))")
# This pattern begins with a character class, which `re` finds quickly.
SIGN = re.compile(f"[{DASHES}{WAVES}{DAMAGED}]")
DASH = re.compile(rf"(?<![{KANA}{DASHES}])[{DASHES}]+|(?<=[{KANA}])[{DASHES}]+(?=\d)")
LONG_DASH = re.compile("[—―─]{2,}")
DASH_RUN = re.compile(PLACEHOLDERS["――"] + "{2,}")
# Waves with spaces between them count as one wave.
WAVE = re.compile(f"[{WAVES}]+(?: +[{WAVES}]+)*")
WORD_END = re.compile(rf"(?:[^\W_{KANA}]|[%℃)」』])$")
WORD_BEGIN = re.compile(r"(?:[^\W_ぁ-ゖ\u3099-ゟー-ヿﾞﾟ]|[「『])")
# A small kana ends a name only if it is a long one: リエージュ〜バストーニュ, but ウェ〜イ and チュ〜リップ.
NAME_END = re.compile("[ァ-ヺー](?:[アイウエオ-ヂツ-モヤユヨ-ロワ-ヴー]|[ァ-ヺー]{2}[ァィゥェォッャュョ])$")
NAME_BEGIN = re.compile("[アイウエオ-ヂツ-モヤユヨ-ロワ-ヴ][ァ-ヺー]{2}")
# A space after the wave and none before it: 学習〜 次. This space is removed later, so normalizing the text a second
# time does not find it.
PHRASE_END = re.compile(f" +[{JAPANESE}]")
NUMBER = re.compile(r"[-+±]?\d")
ONE_KANA = re.compile(f"[{KANA}]")
# A wave that stands for left-out words, as no word is before it, and the few kana that follow it: 〜から, 「〜ても.
LEFT_OUT = re.compile(rf"(?<![\w{KANA}{WAVES}])[{WAVES}]+[{KANA}]{{1,8}}$")
# A voiced or semi-voiced sound mark, behind a kana or not. neologdn turns ゛ into ﾞ and leaves those that it does not
# compose.
VOICED = re.compile("[ぁ-ヿ]?[\u3099\u309aﾞﾟ]")
COMBINING = {"ﾞ": "\u3099", "ﾟ": "\u309a"}
SPACING = {"ﾞ": "゛", "ﾟ": "゜"}


def normalize(text: str) -> str:
    """Return the normalized text. Every line break becomes \\n.

    The result contains no whitespace except single spaces and \\n, and no control characters. '▁' becomes '_'.
    """
    # isprintable is a fast check: a printable text has no whitespace except " " and no control characters.
    if not text.replace("\n", "").isprintable() or "▁" in text:
        text = CONTROL.sub("", WHITE.sub(" ", with_newlines(text))).replace("▁", "_")
    normal = "\n".join(map(_line, text.split("\n")))
    if any(mark in normal for mark in "\u3099\u309aﾞﾟ"):
        normal = VOICED.sub(_voiced, normal)
    return normal


def _line(line: str) -> str:
    if has_signs := SIGN.search(line):
        line = LONG_DASH.sub("――", line.replace("￥", "¥").replace("‘", "'"))
        for sign, placeholder in PLACEHOLDERS.items():
            line = line.replace(sign, placeholder)
        line = DASH.sub("-", line)
        if WAVE.search(line):
            # What a wave means is decided in full-width kana, with single ー: ﾊﾟﾘ〜ﾆｰｽ.
            line = WAVE.sub(_wave, neologdn.normalize(line, remove_space=False, tilde="ignore"))
    if " " in line:
        line = REMOVED_SPACE.sub("", " ".join(line.split()))
    line = neologdn.normalize(line, remove_space=False, tilde="normalize")
    if has_signs:
        # Punctuation dashes between which a space or a wave was removed are one.
        line = DASH_RUN.sub(PLACEHOLDERS["――"], line)
        for sign, placeholder in PLACEHOLDERS.items():
            line = line.replace(placeholder, sign)
    return line


def _wave(match: re.Match[str]) -> str:
    """Return the replacement for a wave: '~', 'ー' or '', by the rules in the module docstring."""
    text, start, end = match.string, match.start(), match.end()
    before, after = text[max(0, start - 6) : start].rstrip(" "), text[end : end + 4].lstrip(" ")
    if before.endswith("/") or before[-1:].isdecimal() or NUMBER.match(after):
        return "~"
    if PHRASE_END.match(text, end) and before.endswith(text[start - 1]):
        return ""
    between_words = WORD_END.search(before) and WORD_BEGIN.match(after)
    between_names = NAME_END.search(before) and NAME_BEGIN.match(after)
    if between_words or between_names:
        return "~"
    between_kana = start > 0 and ONE_KANA.match(text, start - 1) and ONE_KANA.match(text, end)
    return "ー" if between_kana and not LEFT_OUT.search(text, max(0, start - 16), start) else ""


def _voiced(match: re.Match[str]) -> str:
    """Return a kana and its mark as one character if there is one; otherwise unchanged, with the mark in full width."""
    kana, mark = match[0][:-1], match[0][-1]
    composed = unicodedata.normalize("NFC", kana + COMBINING.get(mark, mark))
    return composed if kana and len(composed) == 1 else kana + SPACING.get(mark, mark)

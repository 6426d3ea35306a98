"""Normalization: one form for each of the many ways the same Japanese text is typed.

neologdn does the work (half-width kana, full-width ASCII, runs of ー and 〜, spaces between Japanese characters). This module settles
what neologdn leaves alone and a corpus cannot use: other white space, control characters, か + ゙ apart, and ▁, which sentencepiece
keeps for itself. And it departs from neologdn in two places where that would change what a text says: 10〜20人 (neologdn: 1020人)
and ＧＰＴ－２ (GPTー2). It is not NFKC: ①, ㈱ and Ⅳ stay as they are.
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
RANGE = re.compile(r"[~〜～∼∾〰]+(?=\d)|(?<=/)~")  # 10〜20, 〜5日, example.jp/~name
KEPT = "\ufdd0"  # stands for such a ~ while neologdn removes the others; no character of any text
HYPHEN = re.compile("(?<=[A-Za-z0-9Ａ-Ｚａ-ｚ０-９])[﹣－—―─━]+")  # behind Latin letters and digits these are no ー
VOICED = re.compile("[ぁ-ヿ][\u3099\u309a]")  # a kana and its mark apart


def normalize(text: str) -> str:
    """The normal form of a text of any number of lines; line breaks stay.

    The result holds no white space but single spaces and line breaks, no control characters and no '▁' (it becomes '_').
    """
    if not text.isprintable() or "▁" in text:  # isprintable is a fast first look: no white space but " ", no controls
        text = CONTROL.sub("", WHITE.sub(" ", text.replace("\r\n", "\n"))).replace("▁", "_")
    text = HYPHEN.sub("-", text)
    if any(sign in text for sign in "~〜～∼∾〰"):
        text = RANGE.sub(KEPT, text)
    normal = neologdn.normalize(text) if "\n" not in text else "\n".join(map(neologdn.normalize, text.split("\n")))
    if "\u3099" in normal or "\u309a" in normal:
        normal = VOICED.sub(lambda match: unicodedata.normalize("NFC", match[0]), normal)
    return str(normal).replace(KEPT, "~")

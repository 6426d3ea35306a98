"""Normalization: one form for each of the many ways the same Japanese text is typed.

neologdn does the work (half-width kana, full-width ASCII, runs of ー and 〜, spaces between Japanese characters). Before it, this
module settles what neologdn leaves alone and a corpus cannot use: other white space, control characters, and ▁, which
sentencepiece keeps for itself; and it joins か + ゙ to が, as files from a Mac need. It is not NFKC: ①, ㈱ and Ⅳ stay as they are.
"""

import re
import unicodedata

import neologdn

WHITE = re.compile(
    r"[^\S\n ]|\u200b|\ufeff|\u00ad"
)  # every white space but line breaks and spaces; invisible separators
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x9f\u200e\u200f\u202a-\u202e\u2060\ud800-\udfff\ufffe\uffff]")
VOICED = re.compile("[ぁ-ヿ][\u3099\u309a]")  # a kana and its mark apart


def normalize(text: str) -> str:
    """The normal form of a text of any number of lines; line breaks stay.

    The result holds no white space but single spaces and line breaks, no control characters and no '▁' (it becomes '_').
    """
    if not text.isprintable() or "▁" in text:  # isprintable is a fast first look: no white space but " ", no controls
        text = CONTROL.sub("", WHITE.sub(" ", text.replace("\r\n", "\n"))).replace("▁", "_")
    if "\u3099" in text or "\u309a" in text:
        text = VOICED.sub(lambda match: unicodedata.normalize("NFC", match[0]), text)
    if "\n" not in text:
        return str(neologdn.normalize(text))
    return "\n".join(map(neologdn.normalize, text.split("\n")))

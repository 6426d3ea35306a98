"""What the original replaces by one token each before it encodes running text: addresses, numbers to call, dates, prices, drawn boxes.

The rules are those of the original (tanreinama/GPTSAN, encode_swe.py) with its oddities: `円` alone is a price, `1/2` a date, a long
number a telephone. Written so that none of them needs more than linear time on ordinary text: the original's rule for prices doubles its
time with every digit, its rule for mail takes a minute for a megabyte of letters. Its second rule for dates (with an era) is left out: the
first has always taken its month before.
"""

import re

URL = re.compile(r"(?:https?|ftp)://[-_.!~*'()a-zA-Z0-9;/?:@&=+$,%#]+")
MAIL_DOMAIN = re.compile(r"@[-_0-9A-Za-z]+(?:\.[A-Za-z]+)*")
MAIL_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+"
TEL = re.compile(r"\(?[0-9]{2,4}[-()]?[0-9]{2,4}[-)]?[0-9]{3,4}")
DATE = re.compile(
    r"(?:[12]\d{3}[-/年])*(?:0?[1-9]|1[0-2])[-/月]"
    r"(?:(?:0?[1-9]|[12][0-9]|3[01])日?)*"
    r"(?:\d{1,2}|:|\d{1,2}時|\d{1,2}分|\([日月火水木金土]\)|[㈰㈪㈫㈬㈭㈮㈯])*"
)
_NUMBER = r"(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9](?:(?![1-9])\d)*|0)*+"  # digits, with commas between threes; never gives a digit back
PRICE = re.compile(
    rf"(?:{_NUMBER}億)*+(?:{_NUMBER}万)*+(?:{_NUMBER}千)*+{_NUMBER}"
    r"(?:(?:千万|千|万)?(?:円|ドル|ユーロ))+(?:\(税[込抜]\)|\+tax)*"
)
BLOCK = re.compile(r"(?:[\u2500-\u259f]|<BLOCK>)+")


def clean(text: str) -> str:
    """The text with `<URL>`, `<EMAIL>`, `<TEL>`, `<DATE>`, `<PRICE>` and `<BLOCK>` where such things were, in this order of search."""
    text = URL.sub("<URL>", text)
    *before, rest = MAIL_DOMAIN.split(text)
    text = "".join(piece.rstrip(MAIL_NAME) + "<EMAIL>" for piece in before) + rest
    for pattern, token in (TEL, "<TEL>"), (DATE, "<DATE>"), (PRICE, "<PRICE>"), (BLOCK, "<BLOCK>"):
        text = pattern.sub(token, text)
    return text

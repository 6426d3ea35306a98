"""Text cleaning: replaces URLs, e-mail addresses, phone numbers, dates, prices and box-drawing characters with tokens.

The rules are those in the original GPTSAN code (encode_swe.py in tanreinama/GPTSAN) and give the same false positives:
`円` alone counts as a price, `1/2` as a date, and a long number as a phone number. The regular expressions are
rewritten to run in linear time on ordinary text; the original's take quadratic time for e-mail (0.6 s for 20,000
letters in a row) and exponential time for prices. Its rule for dates with an era is omitted: it never matches.
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
_CURRENCY = r"(?:円|ドル|ユーロ)(?:(?:千万|[千万])?(?:円|ドル|ユーロ))*(?:\(税[込抜]\)|\+tax)*"
MONEY = re.compile(rf"([\d,億万千]++)({_CURRENCY})?|{_CURRENCY}")
# Digits, with or without a comma before each group of three. The possessive `*+` prevents backtracking.
_DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9](?:(?![1-9])\d)*|0)*+"
AMOUNT = re.compile(rf"(?:{_DIGITS}億)*+(?:{_DIGITS}万)*+(?:{_DIGITS}千)*+{_DIGITS}万?\Z")
BLOCK = re.compile(r"(?:[\u2500-\u259f]|<BLOCK>)+")


def clean(text: str) -> str:
    """Replace matches with `<URL>`, `<EMAIL>`, `<TEL>`, `<DATE>`, `<PRICE>` and `<BLOCK>`, one after the other."""
    text = URL.sub("<URL>", text)
    *before, rest = MAIL_DOMAIN.split(text)
    text = "".join(piece.rstrip(MAIL_NAME) + "<EMAIL>" for piece in before) + rest
    text = DATE.sub("<DATE>", TEL.sub("<TEL>", text))
    return BLOCK.sub("<BLOCK>", MONEY.sub(_price, text))


def _price(match: re.Match[str]) -> str:
    """Replace a currency and the well-formed amount before it with `<PRICE>`; keep other digits."""
    number = match[1] or ""
    if number and not match[2]:
        return number
    # The leftmost match is the longest well-formed amount at the end of the number; it may be empty.
    amount = AMOUNT.search(number)
    assert amount is not None
    return number[: amount.start()] + "<PRICE>"

"""Placeholders for signs that an article shows, so that no later step takes them for markup.

A placeholder is a lone surrogate, which no text decoded from UTF-8 contains. `restore` is the last step of to_text.
"""

import re
from html import entities, unescape

# Placeholders for signs from <nowiki>, character references and formulas: the code point of the sign is added.
BASE = 0xDC00
SIGNS = frozenset("[]{}<>|'=_*#:;!-")
# An address keeps its signs, because a later step removes it as a whole.
SIGN = re.compile(r"(?:https?|ftp)://[!-;=?-Z^_`a-z~]+|[" + re.escape("".join(sorted(SIGNS))) + "]")
# | and = that come out of a template: they do not divide the arguments of the template around it, but are markup for
# links, tags and tables.
YIELDED = {"|": "\udb7c", "=": "\udb3d"}
BAR = YIELDED["|"]
# Stands for <nowiki />: separates markup, and disappears.
GUARD = "\udc00"
# Stands at both ends of a fraction: becomes a space between two digits, and disappears elsewhere.
APART = "\udc01"
BETWEEN_DIGITS = re.compile(rf"(?<=[0-9]){APART}+(?=[0-9])")
PLACEHOLDER = re.compile("[\ud800-\udfff]")
# References to a sign, such as &#91; and &vert;. Those to & < > by name are often escaped twice, and resolved later.
_NAMES = "|".join(
    name for name, character in entities.html5.items() if character in SIGNS - {"<", ">"} and name.endswith(";")
)
REFERENCE = re.compile(rf"&(?:#[0-9]{{1,7}};|#[xX][0-9a-fA-F]{{1,6}};|{_NAMES})")


def protect(text: str) -> str:
    """Replace each sign of markup by its placeholder."""
    return SIGN.sub(lambda sign: chr(BASE + ord(sign[0])) if len(sign[0]) == 1 else sign[0], text)


def protect_references(text: str) -> str:
    """Replace each character reference to a sign by the placeholder of that sign."""
    return REFERENCE.sub(lambda reference: _referenced(reference[0]), text) if "&" in text else text


def _referenced(reference: str) -> str:
    sign = unescape(reference)
    return protect(sign) if sign in SIGNS else reference


def yielded(text: str) -> str:
    """Replace signs that would divide the arguments of the template around a template with this text."""
    for sign, placeholder in YIELDED.items():
        text = text.replace(sign, placeholder)
    return text


def restore_yielded(text: str) -> str:
    """Put back the signs that templates yielded."""
    for sign, placeholder in YIELDED.items():
        text = text.replace(placeholder, sign)
    return text


def restore(text: str) -> str:
    """Replace all placeholders by what they stand for."""
    try:
        # The fastest test for surrogates.
        text.encode()
    except UnicodeEncodeError:
        text = BETWEEN_DIGITS.sub(" ", restore_yielded(text))
        return PLACEHOLDER.sub(lambda placeholder: _restored(ord(placeholder[0]) - BASE), text)
    return text


def _restored(code: int) -> str:
    return chr(code) if 0 <= code < 128 and chr(code) in SIGNS else ""

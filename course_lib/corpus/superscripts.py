"""Superscripts and subscripts as plain text, so that no number becomes another one: 10² and not 102.

What is neither a short number nor an exponent loses only its position: H<sub>2</sub>O becomes H2O, 1<sup>st</sup> 1st.
"""

import re
from html import unescape

from course_lib.corpus.literals import APART, restore

RAISED = str.maketrans("0123456789-−–+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁻⁺")
LOWERED = str.maketrans("0123456789-−–+", "₀₁₂₃₄₅₆₇₈₉₋₋₋₊")
# <sup>…</sup> and <sub>…</sub> without another one inside; group 1 is the name, group 2 the content.
SUP_SUB = re.compile(r"<(sup|sub)\b[^<>]*>((?:[^<]++|<(?!/?su[pb]\b))*+)</\1\s*>", re.I)
# Hours, minutes and seconds, as of a right ascension: 5<sup>h</sup>55<sup>m</sup>.
TIME = re.compile(r"<sup>(?<=\d<sup>)[dh]</sup>\s?\d+<sup>[hm]</sup>(?:\s?\d+(?:\.\d+)?<sup>[ms]</sup>)*")
# A tag without its other half.
HALF = re.compile(r"</?su[pb]\b[^<>]*>", re.I)
# Levels of nested superscripts that are resolved.
DEEPEST = 20
# Characters before a superscript that are examined.
NEAR = 80
# What is not seen: quotes and tags, and noncharacters, which stand where words were removed (wikitext.GAP).
UNSEEN = rf"''++|</?[A-Za-z][^<>]*>|[{APART}\ufdd0-\ufdef]"
MARKUP = re.compile(UNSEEN)
MARKUP_AT_END = re.compile(rf"(?:{UNSEEN})++$")
ITALIC = re.compile(r"''|<(?:i|em|var)\b", re.I)
# Powers, charges and isotopes, which have superscript characters: 10⁻³, Ca²⁺, ¹⁴C.
SHORT = re.compile(r"[-+−–]?[0-9]{1,4}|[0-9]{0,4}[-+−–]")
LATIN = "A-Za-zÀ-ÖØ-öø-ɏ"
# Latin and Greek letters.
LETTER = LATIN + "\u0370-\u03ff"
# What may stand before ^.
POWER_BASE = re.compile(rf"[0-9{LETTER})]")
EXPRESSION = re.compile(
    rf"(?=.*[0-9{LETTER}])(?:[0-9{LETTER}⁰¹²³⁴-⁹⁺⁻₀-₉₊₋.+\-−–±×·*/^() ]|(?<=[0-9]),(?=[0-9]{{3}}))+"
)
# An exponent that needs no brackets.
ATOM = re.compile(rf"[-+−–±]?(?:[0-9]+(?:,[0-9]{{3}})*(?:\.[0-9]+)?|[{LETTER}])")
BRACKETED = re.compile(r"\(([^()]*)\)")
HAS_LETTER = re.compile(f"[{LETTER}]")
LETTERS = re.compile(rf"[{LATIN}.]+")
LAST_WORD = re.compile(rf"[{LATIN}]+$")
NUMBER_IN_BRACKETS = re.compile(r"\([0-9.]+\)$")
STARTS_WITH_DIGIT = re.compile(r"[.,]?\d")
ENDS_WITH_DIGIT = re.compile(r"\d[.,]?$")
# "o" is the numero sign in No, and the degree sign.
ORDINALS = {"st", "nd", "rd", "th", "o"}


def resolve(text: str) -> str:
    """Replace all <sup>…</sup> and <sub>…</sub>, innermost first."""
    if not any(start in text for start in ("<su", "<Su", "<SU", "<sU")):
        return text
    text = TIME.sub(lambda time: HALF.sub("", time[0]), text)
    for _ in range(DEEPEST):
        text, number = SUP_SUB.subn(_sup_sub, text)
        if not number:
            break
    return HALF.sub(APART, text)


def superscript(before: str, content: str, after: str = "") -> str:
    """Return what is written for a superscript between two texts.

    superscript("10", "-3") → ⁻³; superscript("x", "n+1") → ^(n+1); superscript("1", "st") → st.
    """
    plain = restore(unescape(MARKUP.sub("", content))).strip()
    if SHORT.fullmatch(plain):
        return plain.translate(RAISED)
    if POWER_BASE.fullmatch(before[-1:]) and _is_exponent(before, plain, bool(ITALIC.search(content))):
        bare = ATOM.fullmatch(plain) and not re.match(rf"[0-9{LETTER}]", after)
        return f"^{plain}" if bare or BRACKETED.fullmatch(plain) else f"^({plain})"
    return content.translate(RAISED) if _glued(before, plain, after) else content


def subscript(before: str, content: str, after: str = "") -> str:
    """Return what is written for a subscript between two texts: 1010₂, (101)₂ and log₂x, but H2O and x1."""
    plain = restore(unescape(MARKUP.sub("", content))).strip()
    word = _last_word(before)
    is_base = NUMBER_IN_BRACKETS.search(before) or (len(word) > 1 and word.islower())
    if (is_base and not HAS_LETTER.search(plain)) or _glued(before, plain, after):
        return content.translate(LOWERED)
    return content


def _sup_sub(tag: re.Match[str]) -> str:
    content = tag[2]
    if "\n" in content:
        return APART + content + APART
    near = unescape(MARKUP_AT_END.sub("", tag.string[max(0, tag.start() - NEAR) : tag.start()]))
    rest = tag.string[tag.end() : tag.end() + NEAR].lstrip("'")
    write = superscript if tag[1].lower() == "sup" else subscript
    return write(restore(near), content, rest[:1])


def _glued(before: str, content: str, after: str) -> bool:
    """Return whether digits of the content would form a number with digits outside."""
    return bool(
        (before[-1:].isdecimal() and STARTS_WITH_DIGIT.match(content))
        or (after.isdecimal() and ENDS_WITH_DIGIT.search(content))
    )


def _is_exponent(before: str, content: str, italic: bool) -> bool:
    """Return whether a superscript behind a digit, a letter or ")" is an exponent.

    Others are signs of notes, such as 1), ordinals (1st, XXe) and abbreviations (TM, Mlle). Variables are italic, or
    single letters.
    """
    if not EXPRESSION.fullmatch(content) or content.count("(") != content.count(")"):
        return False
    word = _last_word(before)
    if bracketed := BRACKETED.fullmatch(content):
        # f^(n) is a derivative, and (1) or (R) behind a word is the sign of a note.
        return len(word) == 1 and not bracketed[1].isdecimal()
    if italic or not LETTERS.fullmatch(content):
        return True
    if before[-1].isdecimal():
        return len(content) == 1 and content not in "eo"
    if not word.islower() and word:
        return len(word) == len(content) == 1 and content != "o"
    return (len(word) == 1 or len(content) == 1) and content.lower() not in ORDINALS


def _last_word(text: str) -> str:
    word = LAST_WORD.search(text)
    return word[0] if word else ""

"""Exercises for chapter 1: references in wiki markup, the share of hiragana, and Jaccard similarity."""

import re

from course_lib.exercises import Chapter, Exercise


def without_references(wikitext: str) -> str:
    """Remove the references from wiki markup."""
    return re.sub(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>", "", wikitext, flags=re.S)


def hiragana_share(text: str) -> float:
    """Return the share (0 to 1) of hiragana among the characters that are not white space."""
    dense = "".join(text.split())
    return sum("ぁ" <= char <= "ゟ" for char in dense) / len(dense) if dense else 0.0


def jaccard(a: str, b: str, n: int = 5) -> float:
    """Return the Jaccard similarity (0 to 1) of two texts, based on their sets of character n-grams."""
    grams_a, grams_b = ({text[i : i + n] for i in range(len(text) - n + 1)} for text in (a, b))
    return len(grams_a & grams_b) / len(grams_a | grams_b) if grams_a | grams_b else 0.0


CHAPTER = Chapter(
    Exercise(
        "write a function without_references(wikitext) that removes <ref>…</ref> and <ref … />",
        (
            (("本文<ref>出典</ref>です。",), "本文です。", "a plain reference"),
            (("一<ref>a</ref>二<ref>b</ref>三",), "一二三", "two references: `.*` is greedy and eats 二; use `.*?`"),
            (
                ('一<ref name="a" />二<ref name="a">b</ref>三',),
                "一二三",
                "a <ref … /> that closes itself: match it first, otherwise 二 is lost",
            ),
            (("一<ref>二行に\nわたる</ref>三",), "一三", "a reference over two lines: `.` needs re.DOTALL"),
            (("そのまま",), "そのまま", "no reference"),
        ),
        (
            "One re.sub whose pattern has two alternatives is enough.",
            "`<ref[^<>]*/>` first, then `<ref[^<>]*>.*?</ref>`, with re.DOTALL.",
        ),
        without_references,
        "The self-closing form comes first. Otherwise the pattern matches from its `<ref` to the `</ref>` of a later "
        "reference.",
    ),
    Exercise(
        "write a function hiragana_share(text): hiragana among all characters that are not white space",
        (
            (("ひらがな",), 1.0, "count characters, and divide by all of them"),
            (("漢字とかな",), 0.6, "count characters, and divide by all of them"),
            (("カタカナ",), 0.0, "katakana are not hiragana: the range is ぁ to ゟ"),
            (("か な\n漢 字",), 0.5, "white space counts neither in the numerator nor in the denominator"),
            (("",), 0.0, "an empty text has no characters; return 0.0 to avoid a division by zero"),
        ),
        (
            "Remove the white space with ''.join(text.split()).",
            "'ぁ' <= char <= 'ゟ' is True for hiragana; True counts as 1 in sum().",
        ),
        hiragana_share,
        "Prose needs hiragana for its grammar. Keyword lists and menus have kanji and katakana, but few hiragana.",
    ),
    Exercise(
        "write a function jaccard(a, b, n): shared character n-grams over all n-grams of two texts",
        (
            (("あいうえお", "あいうえお", 2), 1.0, "shared n-grams over all n-grams"),
            (("あいう", "いうえ", 2), 1 / 3, "the n-grams are あい, いう and いう, うえ: one shared of three"),
            (("ああああ", "ああ", 2), 1.0, "a set holds each n-gram once, however often it occurs"),
            (("日本語", "英語圏", 2), 0.0, "shared n-grams over all n-grams"),
            (("あ", "い", 2), 0.0, "texts shorter than n have no n-grams; return 0.0"),
        ),
        (
            "Make a set of text[i:i+n] for each text.",
            "The answer is len(A & B) / len(A | B). Texts shorter than n need a case of their own.",
        ),
        jaccard,
        "MinHash estimates this number from a few hashes per text, so that millions of pairs need not be compared.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution

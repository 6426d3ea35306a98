"""Superscripts, subscripts and fractions between numbers."""

import re

from course_lib.corpus.superscripts import superscript
from course_lib.corpus.wikitext import to_text
from hypothesis import example, given
from hypothesis import strategies as st

NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
DIGITS = st.text("0123456789", min_size=1, max_size=3)
CONTENT = st.text("0159.,+-n() 注", min_size=1, max_size=5).filter(re.compile("[0-9n注]").search)


@given(DIGITS, CONTENT, DIGITS, st.sampled_from(["sup", "sub"]), st.sampled_from(["{{%s|%s}}", "<%s>%s</%s>"]))
@example("10", ",5", "2", "sup", "<%s>%s</%s>")
@example("10", "(1)", "2", "sup", "{{%s|%s}}")
@example("10", "5,", "2", "sub", "<%s>%s</%s>")
def test_digits_on_both_sides_never_become_another_number(
    before: str, content: str, after: str, name: str, form: str
) -> None:
    script = form % ((name, content, name)[: form.count("%s")])
    found = NUMBER.findall(to_text(f"値{before}{script}{after}"))
    assert (found[0], found[-1]) == (before, after)


@given(DIGITS, DIGITS, DIGITS, DIGITS)
def test_digits_beside_a_fraction_never_become_another_number(before: str, upper: str, lower: str, after: str) -> None:
    text = to_text(f"値{before}{{{{sfrac|{upper}|{lower}}}}}{after}")
    assert text == f"値{before} {upper}/{lower} {after}"


def test_what_is_behind_decides_about_brackets() -> None:
    assert superscript("e", "x") == "^x"
    assert superscript("e", "x", "d") == "^(x)"
    assert superscript("e", "x", "で") == "^x"
    assert superscript("人", "x") == "x"

"""Bits per character: a uniform model, a toy computed by hand, and what normalization takes away."""

import math

import pytest
from course_lib.errors import CourseError
from course_lib.evaluation import bits
from course_lib.evaluation.scoring import Tokens
from course_lib.evaluation.windows import WindowSettings
from course_lib.japanese import normalize

from tests.evaluation.toys import Table, Uniform


def test_a_uniform_model_costs_log2_of_its_entries() -> None:
    entries = 3
    texts = ["春はあけぼの。", "夏は夜。"]
    found = bits.bits(Uniform(entries), texts)
    assert (found.documents, found.characters, found.bytes, found.tokens) == (2, 11, 33, 13)
    assert found.bits == pytest.approx(13 * math.log2(entries))
    assert found.bits_per_character == pytest.approx(13 / 11 * math.log2(entries))
    assert found.bits_per_byte == pytest.approx(found.bits_per_character / 3)
    assert found.perplexity_per_token == pytest.approx(entries)
    assert found.lost == 0


def test_a_toy_by_hand() -> None:
    # "ab": 1/2 · 1/4 · 1/8 = 2**-6; "b": 1/4 · 1/8 = 2**-5
    model = Table({"^a": 1 / 2, "ab": 1 / 4, "b$": 1 / 8, "^b": 1 / 4})
    found = bits.bits(model, ["ab", "b"])
    assert found.bits == pytest.approx(11) and found.tokens == 5
    assert found.bits_per_character == pytest.approx(11 / 3)
    assert found.perplexity_per_token == pytest.approx(2 ** (11 / 5))


def test_line_breaks_cost_nothing() -> None:
    text = "春はあけぼの。\nやうやう白くなりゆく。\r\n"
    broken, joined = bits.bits(Uniform(4), [text]), bits.bits(Uniform(4), ["".join(text.split())])
    assert broken == joined and broken.characters == 18


class Normalizing(Uniform):
    def tokens(self, text: str, end: bool) -> Tokens:
        return super().tokens(normalize(text), end)


def test_characters_that_normalization_changes_are_counted_and_reported() -> None:
    # Ａ is replaced, both spaces and 〜 are deleted: 4 of 8 characters
    text = "Ａだ  最高〜で"
    assert normalize(text) == "Aだ最高で"
    found = bits.bits(Normalizing(2), [text])
    assert found.characters == 8 and found.tokens == 6
    assert found.lost == pytest.approx(4 / 8)
    assert found.bits_per_character == pytest.approx(6 / 8)


def test_many_documents_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{n}番目の文" for n in range(50)]
    whole = bits.bits(Uniform(7), texts)
    monkeypatch.setattr(bits, "AT_ONCE", 7)
    parts = bits.bits(Uniform(7), iter(texts), WindowSettings(batch_size=3))
    assert parts.bits == pytest.approx(whole.bits)
    assert (parts.documents, parts.characters, parts.tokens) == (whole.documents, whole.characters, whole.tokens)


def test_no_text() -> None:
    with pytest.raises(CourseError, match="no text to evaluate"):
        bits.bits(Uniform(2), ["", ""])

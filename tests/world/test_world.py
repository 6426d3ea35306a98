"""The small world: documents without complaint, one reading a sentence, and contradictions that are found."""

import random
from collections import Counter

import pytest
from course_lib.command_line.world import NAMES
from course_lib.world.check import check, readings, table
from course_lib.world.genre import Document, Draw
from course_lib.world.genres import GENRES, documents
from course_lib.world.pairs import DISTANCES, by_distance, pairs


@pytest.fixture(scope="module")
def many() -> list[Document]:
    return [*documents(6000, seed=0)]


def test_no_complaint_and_one_derivation(many: list[Document]) -> None:
    """One reading a sentence, and each drawn fact stands in it: the probability of the choices is that of the text."""
    for document in many:
        verdict = check(document.text)
        assert verdict.genre == document.genre and verdict.contradictions == []
        assert [len(readings(sentence)) for sentence in verdict.sentences] == [1] * len(verdict.sentences)
        stated = {name: value for reading in verdict.readings if reading for name, value in reading.facts.items()}
        assert stated == document.facts


def test_every_planted_contradiction_is_found(many: list[Document]) -> None:
    rng, kinds = random.Random(0), Counter[str]()
    for document in many[:1000]:
        for pair in pairs(document, rng):
            good, bad = check(pair.good), check(pair.bad)
            assert pair.fact in bad.contradictions, pair
            assert set(good.contradictions) <= {"plot"}, pair
            kinds[pair.fact] += 1
    repeated = "who pet color item place helper area vegetable meat dish added minutes winner hero"
    assert {*repeated.split(), "friend"} <= kinds.keys()


def test_pairs_by_distance_are_always_the_same_and_differ_in_the_last_sentence() -> None:
    found = by_distance(10)
    assert found == by_distance(10)
    assert Counter(name for name, _ in found) == dict.fromkeys(DISTANCES, 10)
    for name, pair in found:
        good, bad = check(pair.good), check(pair.bad)
        assert pair.distance in DISTANCES[name] and good.sentences[:-1] == bad.sentences[:-1]
        assert pair.fact in bad.contradictions and pair.fact not in good.contradictions


def test_every_broken_rule_is_found() -> None:
    """A value of each fact is replaced wherever it stands, so that only a rule can see it."""
    rng, seen = random.Random(1), set()
    for document in documents(3000, seed=1):
        verdict = check(document.text)
        genre = next(one for one in GENRES if one.name == document.genre)
        fact = rng.choice([*document.facts])
        other = rng.choice([value for value in genre.known.values[fact] if value != document.facts[fact]])
        facts = document.facts | {fact: other}
        text = "".join(reading.wording.format(**facts) for reading in verdict.readings if reading)
        seen |= {(genre.name, name) for name in check(text).contradictions}
    assert seen >= {(genre.name, rule) for genre in GENRES for rule in genre.rules}


def test_order_and_genre() -> None:
    tale, weather = (next(one for one in documents(100, 0) if one.genre == name) for name in ("tale", "weather"))
    sentences = check(tale.text).sentences
    assert check("".join(sentences[1:])).contradictions == ["plot"]
    assert check("".join([*sentences[:2], sentences[3], sentences[2], *sentences[4:]])).contradictions == ["plot"]
    assert "genre" in check(tale.text + check(weather.text).sentences[0]).contradictions


def test_bits_are_those_of_the_choices() -> None:
    """A genre with 2 · 3 equally likely texts, one in four of them longer."""
    draw = Draw(random.Random(0))
    draw.one("ab")
    draw.one(range(3))
    longer = draw.happens(0.25)
    assert draw.bits == pytest.approx(1 + 1.58496 + (2 if longer else 0.41504), abs=1e-4)


def test_documents_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    assert [*documents(5, 3)] == [*documents(7, 3)][:5]
    assert [one.text for one in documents(5, 3)] != [one.text for one in documents(5, 4)]


def test_table(many: list[Document]) -> None:
    texts = [one.text for one in many[:50]]
    found = table([*texts, "水が水がある。", ""], training=texts[:10])
    assert found["texts"] == 52
    assert found["without contradiction"] == 50 / 52
    assert found["copied"] == 10 / 52
    assert found["longest copied span"] == max(map(len, texts[:10]))
    assert found["sentences of the world"] == pytest.approx(1 - 1 / found["sentences"])


def test_all_that_the_checker_names_is_there_for_the_translators() -> None:
    named = {name for genre in GENRES for name in (*genre.rules, *genre.known.values)} | {"genre", "plot"}
    assert named <= {*NAMES}

"""Tasks of the world: what titles and answers state stands in the text, and a plain sentence is one of a diary."""

import pytest
from course_lib.world.check import check, readings
from course_lib.world.genre import Document
from course_lib.world.genres import documents
from course_lib.world.tasks import asked_for, plain, questions, styles, title


@pytest.fixture(scope="module")
def some() -> list[Document]:
    return [*documents(2000, seed=3)]


def test_a_title_has_facts_of_the_text(some: list[Document]) -> None:
    tale = next(one for one in some if one.genre == "tale")
    assert title(tale) == "{who}と{color}{item}".format(**tale.facts)
    assert {one.genre for one in some if not title(one)} == {"recipe"}
    for document, titled in ((one, named) for one in some if (named := title(one))):
        stated = [str(value) for value in document.facts.values() if str(value) in titled]
        assert stated
        assert all(value in document.text for value in stated)


def test_an_answer_stands_in_the_text(some: list[Document]) -> None:
    for document in some:
        asked = questions(document)
        assert 1 <= len(asked) <= 4
        assert all(answer in document.text and fact in document.facts for _, answer, fact in asked)
        assert len({question for question, _, _ in asked}) == len(asked)


def test_a_plain_sentence_says_the_same(some: list[Document]) -> None:
    letters = [one for one in some if one.genre == "letter"]
    for document in letters:
        both = [*styles(document)]
        # Greeting, the word on how one is, and closing have no plain form; the day of a diary is another one: today.
        assert len(both) == len(check(document.text).sentences) - 4
        for polite, other in both:
            (before,), (after,) = readings(polite), readings(other)
            assert (before.kind, before.facts) == (after.kind, after.facts)
            assert (before.genre.name, after.genre.name) == ("letter", "diary")


def test_no_plain_form() -> None:
    assert plain("お元気ですか。") is None
    assert plain("水が水がある。") is None


def test_what_a_question_asks_for(some: list[Document]) -> None:
    for document in some:
        assert all(asked_for(question) == fact for question, _, fact in questions(document))
    assert asked_for("お元気ですか。") is None

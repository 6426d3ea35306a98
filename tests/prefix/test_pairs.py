"""Pairs for the tasks of chapter 6: each is what its document says, and the models have not read the documents."""

import re

import orjson
import pytest
from course_lib.corpus import products as corpus
from course_lib.prefix import products
from course_lib.world import tasks
from course_lib.world.genres import documents

NUMBER, SEED = 300, 5
Pairs = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    folder = tmp_path_factory.mktemp("pairs")
    counts = tasks.write_pairs(folder, NUMBER, SEED)
    found = {path.stem: [*map(orjson.loads, path.read_bytes().splitlines())] for path in folder.iterdir()}
    assert {name: len(lines) for name, lines in found.items()} == counts and {*found} == {*products.WITH_PAIRS}
    return found


def test_a_title_is_made_of_facts_that_the_text_states(pairs: Pairs) -> None:
    for document, pair in zip(documents(NUMBER, SEED, tasks.TITLED), pairs["title"], strict=True):
        assert pair["prompt"] == document.text
        wording = tasks.TITLES[tasks.SAME.get(document.genre, document.genre)]
        values = [str(document.facts[name]) for name in re.findall(r"{(\w+)}", wording)]
        assert all(value in pair["target"] and value in document.text for value in values), pair


def test_a_question_has_its_answer_in_the_text(pairs: Pairs) -> None:
    for document, pair in zip(documents(NUMBER, SEED), pairs["question"], strict=True):
        asked = pair["prompt"].removeprefix(document.text)
        assert asked.endswith("か。") and asked != pair["prompt"]
        assert pair["target"] in document.text, pair


def test_polite_sentences_are_distinct_and_their_targets_plain(pairs: Pairs) -> None:
    found = pairs["plain"] + pairs["plain-once"]
    assert len({pair["prompt"] for pair in found}) == len(found) > NUMBER / 2
    polite = re.compile(r"(?:です|でした|ます|ました|ません|ましょう)[かねよ]?。$")
    for pair in found:
        assert polite.search(pair["prompt"]) and not polite.search(pair["target"]), pair


def test_the_documents_of_the_pairs_are_not_those_of_the_corpus() -> None:
    """Short documents may be drawn twice: 1 of 2,000 is."""
    learned, asked = (product.resolve()[0] for product in (corpus.WORLD, products.PAIRS))
    texts = {document.text for document in documents(learned["documents"], learned["seed"])}
    asked_about = [document.text for document in documents(asked["documents"], asked["seed"])]
    assert sum(text in texts for text in asked_about) < 0.002 * len(asked_about)

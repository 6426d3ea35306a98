"""The generated sentences: right Japanese endings, no sentence in two places, the same text for the same seed."""

import json

import pytest
from course_lib import paths
from course_lib.prefix import sentences


def test_each_sentence_can_be_formed_once_only():
    every = [sentence for kind in sentences.every_sentence().values() for sentence in kind]
    assert len(every) == len({each.polite for each in every}) == len({each.plain for each in every}) == 22_016


@pytest.mark.parametrize(
    ("polite", "plain"),
    [
        ("母は本を読みます。", "母は本を読む。"),
        ("母は本を読みました。", "母は本を読んだ。"),
        ("彼は駅で電車を待ちません。", "彼は駅で電車を待たない。"),
        ("兄は皿を洗いませんでした。", "兄は皿を洗わなかった。"),
        ("祖父は職員ではありませんでした。", "祖父は職員ではなかった。"),
    ],
)
def test_plain_forms(polite, plain):
    plain_of = {each.polite: each.plain for kind in sentences.every_sentence().values() for each in kind}
    assert plain_of[polite] == plain


def test_no_sentence_of_the_task_is_in_the_text_of_the_base():
    task = {each.polite for each in sentences.pairs()}
    texts = list(sentences.documents(6_000))
    assert len(task) == sentences.TASK_SIZE and not task & {text.split("\n")[0] for text in texts}
    lines = {line for text in texts for line in text.split("\n")}
    assert not lines & {each.plain for each in sentences.pairs()}


def test_the_file_of_the_task_holds_these_sentences():
    with open(paths.data("tasks/plain.jsonl"), encoding="utf8") as file:
        found = [json.loads(line) for line in file]
    assert found == [{"prompt": f"{each.polite}\n", "target": each.plain} for each in sentences.pairs()]


def test_a_seed_gives_the_same_documents():
    first, again, other = (list(sentences.documents(50, seed=seed)) for seed in (0, 0, 7))
    assert first == again != other and all(text.count("\n") == sentences.LINES - 1 for text in first)

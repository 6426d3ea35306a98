"""What came before is found, and nothing else."""

import random

import numpy as np
import pytest
from course_lib import config, workspace
from course_lib.corpus.config import DedupConfig
from course_lib.corpus.dedup import NearDuplicates, Seen, signatures, text_hash
from course_lib.corpus.webfile import Documents
from course_lib.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus.planted import near_copy

SETTINGS = DedupConfig()


@pytest.fixture(scope="module")
def written() -> list[str]:
    """Documents of at least 300 characters that are all different (no two share a tenth of their runs), by people."""
    documents = Documents(workspace.data("webtext-sample.txt.xz"), 10**6, 10**6)
    texts = [raw.decode(errors="replace") for batch in documents for raw in batch.documents]
    chosen: list[str] = []
    runs: list[set[str]] = []
    for text in sorted(texts, key=len, reverse=True):
        own = {text[at : at + 4] for at in range(len(text) - 3)}
        if len(text) >= 300 and all(len(own & other) < 0.1 * len(own | other) for other in runs):
            chosen.append(text)
            runs.append(own)
    assert len(chosen) > 100
    return chosen


def repeats(texts: list[str], settings: DedupConfig = SETTINGS, step: int = 10**6) -> list[int]:
    near = NearDuplicates(settings)
    found: list[int] = []
    for at in range(0, len(texts), step):
        part = texts[at : at + step]
        found += near.add(signatures(part, settings), np.arange(at, at + len(part), dtype=np.int64)).tolist()
    return found


@given(st.lists(st.lists(st.integers(0, 300), max_size=40), max_size=20))
def test_seen_agrees_with_a_set(batches: list[list[int]]) -> None:
    seen, known = Seen(), set()
    for batch in batches:
        expected = []
        for number in batch:
            expected.append(number not in known)
            known.add(number)
        assert seen.first_time(np.array(batch, dtype=np.uint64)).tolist() == expected


def test_seen_keeps_few_arrays_and_eight_bytes_a_number() -> None:
    seen = Seen()
    for start in range(0, 100_000, 100):
        seen.first_time(np.arange(start, start + 100, dtype=np.uint64))
    runs = seen._known.runs
    assert len(runs) < 12 and sum(run.nbytes for run in runs) == 800_000


def test_planted_copies_are_found_and_distinct_documents_stay(written: list[str]) -> None:
    chance = random.Random(1)
    order = list(range(len(written)))
    chance.shuffle(order)
    found = repeats(written + [near_copy(written[at], chance) for at in order])
    assert found[: len(written)] == [-1] * len(written)
    right = [got == at for got, at in zip(found[len(written) :], order, strict=True)]
    assert sum(right) >= 0.98 * len(right)


@pytest.mark.parametrize("step", [1, 7, 50])
def test_the_first_is_kept_however_the_documents_come(written: list[str], step: int) -> None:
    chance = random.Random(2)
    first, second = written[:60], written[60:120]
    texts = first + [near_copy(text, chance, 0.03, 0.04) for text in first] + second + first
    expected = [-1] * 60 + list(range(60)) + [-1] * 60 + list(range(60))
    assert repeats(texts, step=step) == expected


def test_a_repeat_is_judged_by_what_was_kept(written: list[str]) -> None:
    document = written[0][:400]
    half, other_half = document[:200] + "。" + written[1][:200], written[2][:200] + "。" + document[200:]
    # both halves are like the document, but not like each other
    assert repeats([half, other_half], DedupConfig(similarity=0.25)) == [-1, -1]
    assert repeats([half, document, other_half], DedupConfig(similarity=0.25)) == [-1, 0, -1]


def test_the_document_that_is_named_is_the_one_that_is_alike(written: list[str]) -> None:
    beside, document = written[0][:150] + written[1][:450], written[0][:600]
    every_value = DedupConfig(similarity=0.3, num_bands=192)  # so that whatever shares anything is a candidate
    assert repeats([beside, document, near_copy(document, random.Random(5))], every_value, step=1) == [-1, -1, 1]


def test_similarity_is_the_limit(written: list[str]) -> None:
    texts = [written[0][:600], written[0][:300] + written[1][:300]]  # about a third in common
    assert repeats(texts, DedupConfig(similarity=0.2)) == [-1, 0]
    assert repeats(texts, DedupConfig(similarity=0.5)) == [-1, -1]


def test_width_and_line_breaks_do_not_hide_a_copy() -> None:
    text = "ＡＢＣ社のﾃﾞｻﾞｰﾄを食べました。\n値段は１２００円（税込）でした。また行きたいです！"
    copy = "ABC社のデザートを食べました。値段は1200円(税込)でした。 また行きたいです!"
    assert signatures([text], SETTINGS).tolist() == signatures([copy], SETTINGS).tolist()


def test_shorter_than_one_run() -> None:
    assert signatures(["あ", "あ", "い", ""], SETTINGS).shape == (4, SETTINGS.num_perm)
    assert repeats(["あ", "あ", "い", ""]) == [-1, 0, -1, -1]
    assert repeats([]) == []


def test_text_hash_ignores_white_space_only() -> None:
    assert text_hash("今日は\n　晴れ") == text_hash("今日は晴れ") != text_hash("今日は晴れ。")


def test_bands_have_to_divide_the_signature() -> None:
    with pytest.raises(UsageError, match=r"num_perm \(192\) has to be a multiple of num_bands \(7\)"):
        config.build(DedupConfig, {}, ["num_bands=7"])

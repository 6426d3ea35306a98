"""What came before is found, and nothing else."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from course_lib.corpus.config import DedupConfig
from course_lib.corpus.dedup import band_hashes, signatures
from course_lib.corpus.repeats import near_repeats
from course_lib.corpus.webfile import read_web
from course_lib.workspace import products as workspace

from tests.corpus.planted import near_copy

SETTINGS = DedupConfig()


@pytest.fixture(scope="module")
def written() -> list[str]:
    """Documents of at least 300 characters that are all different (no two share a tenth of their runs), by people."""
    documents = read_web(workspace.data("webtext-sample.txt.xz"), 10**6, 10**6)
    texts = [raw.decode(errors="replace") for batch in documents for raw in batch.documents]
    chosen: list[str] = []
    runs: list[set[str]] = []
    for text in sorted(texts, key=len, reverse=True):
        grams = {text[at : at + 4] for at in range(len(text) - 3)}
        if len(text) >= 300 and all(len(grams & other) < 0.1 * len(grams | other) for other in runs):
            chosen.append(text)
            runs.append(grams)
    assert len(chosen) > 100
    return chosen


def found(texts: list[str], settings: DedupConfig = SETTINGS) -> list[int]:
    """For each text, the position of the earliest one that it nearly duplicates, or -1."""
    rows = signatures(texts, settings)
    with TemporaryDirectory() as folder:
        columns = [Path(folder, f"band-{band}") for band in range(settings.num_bands)]
        for band, column in enumerate(columns):
            band_hashes(rows, settings.num_bands)[:, band].tofile(column)
        rows.astype(np.uint8).tofile(Path(folder, "signatures"))
        needed = settings.similarity * settings.num_perm
        return near_repeats(columns, Path(folder, "signatures"), rows.shape, needed).tolist()


def test_planted_copies_are_found_and_distinct_documents_stay(written: list[str]) -> None:
    chance = random.Random(1)
    order = list(range(len(written)))
    chance.shuffle(order)
    repeated = found(written + [near_copy(written[at], chance) for at in order])
    assert repeated[: len(written)] == [-1] * len(written)
    right = [got == at for got, at in zip(repeated[len(written) :], order, strict=True)]
    assert sum(right) >= 0.98 * len(right)


def test_a_repeat_has_an_earlier_document_that_it_resembles(written: list[str]) -> None:
    """Both halves resemble the document, but not each other: no cluster takes one of them away for the other."""
    document = written[0][:400]
    half, other_half = document[:250] + "。" + written[1][:150], written[2][:150] + "。" + document[150:]
    settings = DedupConfig(similarity=0.25)
    assert found([half, other_half], settings) == [-1, -1]
    assert found([half, other_half, document], settings) == [-1, -1, 0]
    assert found([half, document, other_half], settings) == [-1, 0, 1]


def test_similarity_is_the_limit(written: list[str]) -> None:
    texts = [written[0][:600], written[0][:300] + written[1][:300]]  # about a third in common
    assert found(texts, DedupConfig(similarity=0.2)) == [-1, 0]
    assert found(texts, DedupConfig(similarity=0.5)) == [-1, -1]

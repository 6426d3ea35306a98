"""Samples of one document each: a new order each epoch, cut at the sequence length, padding outside the loss."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.pretrain import data, unpacked
from course_lib.pretrain.config import DataConfig, PretrainConfig
from course_lib.pretrain.gpt2 import MASKED, Gpt2, collate
from course_lib.pretrain.indexed import IndexedDataset, IndexedWriter
from course_lib.pretrain.sampling import Concatenated
from course_lib.pretrain.unpacked import DocumentDataset

END = 2


@pytest.fixture
def corpus(tmp_path: Path) -> Concatenated:
    with IndexedWriter(tmp_path / "three", np.dtype("uint16")) as writer:
        writer.append(np.array([5, 6, 7, END, 8, END, 9, 10, END], dtype="uint16"), np.array([4, 2, 3]))
    return Concatenated([(IndexedDataset(tmp_path / "three"), range(3))])


def test_each_epoch_has_each_document_once_in_an_order_of_its_own(
    corpus: Concatenated, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [len(DocumentDataset(corpus, 9, 3, seed=1, end=END)[i]) for i in range(3)] == [3, 4, 5]
    monkeypatch.setattr(unpacked, "WINDOW", 1)
    samples = DocumentDataset(corpus, 3, 30, seed=1, end=END)
    rows = [tuple(samples[i].tolist()) for i in range(30)]
    documents = [(END, 5, 6, 7), (END, 8, END), (END, 9, 10, END)]
    epochs = [rows[start : start + 3] for start in range(0, 30, 3)]
    assert all(sorted(epoch) == sorted(documents) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert [DocumentDataset(corpus, 3, 30, seed=1, end=END)[i].tolist() for i in (29, 4)] == [[*rows[29]], [*rows[4]]]
    one = DocumentDataset(corpus, 3, None, seed=1, end=END)
    assert [tuple(one[i].tolist()) for i in range(len(one))] == documents


def test_padding_costs_nothing(corpus: Concatenated) -> None:
    """The loss of a padded batch is the mean over its tokens."""
    torch.manual_seed(0)
    table = torch.randn(11, 11)
    task: Any = SimpleNamespace(settings=PretrainConfig())
    samples = [torch.tensor(DocumentDataset(corpus, 8, None, 0, END)[i]) for i in range(3)]
    batch = collate([sample.numpy() for sample in samples])
    assert (batch["tokens"] == MASKED).sum() == 3

    def model(input_ids: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(logits=table[input_ids])

    losses = [-table[sample[:-1]].log_softmax(-1).gather(1, sample[1:, None]) for sample in samples]
    assert Gpt2.loss(task, model, batch) == pytest.approx(torch.cat(losses).mean().item(), abs=1e-6)


def test_steps_of_an_epoch_count_documents(corpus: Concatenated) -> None:
    settings = replace(PretrainConfig(), data=DataConfig(packing=False, seq_length=8))
    assert data.sample_tokens(settings.data, corpus) == 3

"""Best-fit packing: whole documents, a new order each epoch, no look into another document, padding outside the loss."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain import data
from course_lib.pretrain.best_fit import PackedDocuments, document_mask, pack
from course_lib.pretrain.config import DataConfig, PretrainConfig
from course_lib.pretrain.gpt2 import MASKED, Gpt2, collate
from course_lib.pretrain.indexed import IndexedDataset, IndexedWriter
from course_lib.pretrain.sampling import Concatenated

END = 2
DOCUMENTS = [[5, 6, 7, END], [8, END], [9, 10, END], [11, END]]
ALL_TOKENS = [*chain.from_iterable(DOCUMENTS)]


@pytest.fixture
def corpus(tmp_path: Path) -> Concatenated:
    with IndexedWriter(tmp_path / "four", np.dtype("uint16")) as writer:
        writer.append(np.array(ALL_TOKENS, dtype="uint16"), np.array([len(one) for one in DOCUMENTS]))
    return Concatenated([(IndexedDataset(tmp_path / "four"), range(4))])


def test_each_document_goes_where_it_leaves_least_space() -> None:
    assert pack(np.array([2, 5, 3, 4, 1, 6]), np.arange(6), 7) == [[5, 4], [1, 0], [3, 2]]
    sizes = np.random.default_rng(0).integers(45, 184, 1000)
    packed = pack(sizes, np.arange(1000), 256)
    assert sorted(chain.from_iterable(packed)) == [*range(1000)] and max(sizes[one].sum() for one in packed) <= 256
    assert sizes.sum() / (256 * len(packed)) > 0.9


def test_each_epoch_has_each_document_once_in_an_order_of_its_own(corpus: Concatenated) -> None:
    samples = PackedDocuments(corpus, 6, 30, seed=1, end=END)
    rows = [samples[i].tolist() for i in range(len(samples))]
    assert len(rows) == 30 and all(row[0] == END and len(row) <= 7 for row in rows)
    epochs = [rows[start : start + 2] for start in range(0, 30, 2)]
    for epoch in epochs:
        assert sorted(chain.from_iterable(row[1:] for row in epoch)) == sorted(ALL_TOKENS)
    assert len({str(epoch) for epoch in epochs}) > 2
    assert PackedDocuments(corpus, 6, 30, seed=1, end=END)[17].tolist() == rows[17]
    cut = PackedDocuments(corpus, 3, None, seed=1, end=END)
    assert [END, 5, 6, 7] in [cut[i].tolist() for i in range(len(cut))]


def test_a_document_does_not_see_another_and_padding_costs_nothing(corpus: Concatenated) -> None:
    """The loss of a batch is the mean over the tokens of its documents, each read alone at its positions."""
    torch.manual_seed(0)
    settings = PretrainConfig(
        model=ModelConfig(
            vocab_size=12, hidden_size=8, num_layers=2, num_attention_heads=2, max_position_embeddings=16
        ),
        data=DataConfig(packing="best-fit", seq_length=8),
    )
    model = build_model(settings.model, 1, END).eval()
    task = Gpt2(settings)
    task.__dict__["special_ids"] = (1, END)
    samples = PackedDocuments(corpus, 8, None, 0, END)
    batch = collate([samples[i] for i in range(len(samples))])
    assert (batch["tokens"] == MASKED).sum() == 3
    losses = []
    for places in samples.samples:
        position = 0
        for place in places:
            ids = torch.tensor([[END, *DOCUMENTS[place]]])
            positions = torch.arange(position, position + ids.shape[1] - 1)[None]
            logits = model(input_ids=ids[:, :-1], position_ids=positions).logits
            losses.append(torch.nn.functional.cross_entropy(logits[0], ids[0, 1:], reduction="none"))
            position += ids.shape[1] - 1
    assert task.loss(model, batch).item() == pytest.approx(torch.cat(losses).mean().item(), abs=1e-5)
    stream = Gpt2(replace(settings, data=replace(settings.data, packing="stream")))
    stream.__dict__["special_ids"] = (1, END)
    assert abs(stream.loss(model, batch).item() - torch.cat(losses).mean().item()) > 1e-4


def test_an_end_begins_a_document() -> None:
    mask = document_mask(torch.tensor([[END, 5, END, 7]]), END)
    assert mask.int().tolist() == [[[[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]]]


def test_tokens_of_a_sample_are_a_mean(corpus: Concatenated) -> None:
    settings = replace(PretrainConfig(), data=DataConfig(packing="best-fit", seq_length=8))
    assert data.sample_tokens(settings.data, corpus) == 6

"""Best-fit packing: whole documents, long ones split, a new order each epoch, no look into another, padding outside the loss."""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.errors import CourseError, UsageError
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain import data
from course_lib.pretrain.best_fit import PackedDocuments, document_mask, pack
from course_lib.pretrain.config import DataConfig, PretrainConfig
from course_lib.pretrain.gpt2 import MASKED, Gpt2, collate
from course_lib.pretrain.indexed import IndexedDataset, IndexedWriter
from course_lib.pretrain.sampling import Concatenated
from course_lib.training import run_dir
from course_lib.training.run import ENDLESS
from course_lib.training.settings import ResolvedBatch

END = 2
DOCUMENTS = [[5, 6, 7, END], [8, END], [9, 10, END], [11, END]]
ALL_TOKENS = [*chain.from_iterable(DOCUMENTS)]
# samples of seed 1 for documents of 3, 8, 1, 5, 8, 2 and 7 tokens, eight to a sample
BEFORE = [[2, 6], [0, 3], [5], [4], [1], [6, 2]]


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


def test_each_epoch_has_each_document_once_in_another_order(corpus: Concatenated) -> None:
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


def test_without_end_the_samples_are_those_of_a_known_number(corpus: Concatenated) -> None:
    known, endless = (PackedDocuments(corpus, 6, number, seed=1, end=END) for number in (30, ENDLESS))
    assert endless[17].tolist() == known[17].tolist()
    assert [endless[i].tolist() for i in range(30)] == [known[i].tolist() for i in range(30)]
    assert endless.first_epoch == known.first_epoch == 2 and len(endless) == ENDLESS


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
    for pieces in samples.samples:
        position = 0
        for piece in pieces:
            ids = torch.tensor([[END, *DOCUMENTS[piece]]])
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


# Documents of up to 26 tokens, each of which occurs once: samples of 8 tokens hold some of them whole.
LONG = [
    [*range(first, first + size - 1), END] for first, size in ((10, 3), (20, 26), (50, 9), (60, 8), (70, 17), (90, 14))
]


def packed(
    folder: Path, documents: list[list[int]], seq_length: int = 8, samples: int | None = None
) -> PackedDocuments:
    with IndexedWriter(folder / "long", np.dtype("uint16")) as writer:
        writer.append(np.array([*chain.from_iterable(documents)], "uint16"), np.array([len(one) for one in documents]))
    corpus = Concatenated([(IndexedDataset(folder / "long"), range(len(documents)))])
    return PackedDocuments(corpus, seq_length, samples, seed=1, end=END)


def test_a_long_document_is_split_and_every_token_is_read_once_an_epoch(tmp_path: Path) -> None:
    samples = packed(tmp_path, LONG, samples=40)
    rows = [samples[i].tolist() for i in range(len(samples))]
    assert len(rows) % samples.first_epoch == 0
    for start in range(0, len(rows), samples.first_epoch):
        epoch = rows[start : start + samples.first_epoch]
        read = [token for row in epoch for token in row[1:] if token != MASKED]
        assert sorted(read) == sorted(chain.from_iterable(LONG))
        assert all(len(row) <= 9 and row[0] in (END, MASKED) for row in epoch)
    # 8 samples with a piece of 8 tokens; 3 tokens, and 2, 1, 1 and 6 with a position before them, take three more
    assert samples.first_epoch == 11


def test_a_remainder_begins_without_an_end(tmp_path: Path) -> None:
    """The pieces of a document of 26 tokens, each alone in a sample or after other documents."""
    rows = [packed(tmp_path, LONG[1:2])[i].tolist() for i in range(4)]
    ids = LONG[1]
    assert sorted(rows) == sorted([[END, *ids[:8]], [MASKED, *ids[8:16]], [MASKED, *ids[16:24]], [MASKED, *ids[24:]]])
    # 17 = 8 + 8 + 1, and 9 = 8 + 1: two ends by themselves
    rows = [packed(tmp_path, [LONG[4], LONG[2]])[i].tolist() for i in range(4)]
    assert [MASKED, END, MASKED, END] in rows


@pytest.mark.parametrize("size", [7, 8])
def test_a_document_that_fits_is_whole(tmp_path: Path, size: int) -> None:
    document = [*range(10, 9 + size), END]
    samples = packed(tmp_path, [document])
    assert [samples[i].tolist() for i in range(len(samples))] == [[END, *document]]


def test_documents_that_fit_have_the_samples_of_earlier_versions(tmp_path: Path) -> None:
    """The rows were written down before long documents were split: a run without any goes on as it began."""
    sizes = [3, 8, 1, 5, 8, 2, 7]
    samples = packed(tmp_path, [[*range(10 * i, 10 * i + size)] for i, size in enumerate(sizes)], samples=14)
    assert samples.samples[:6] == BEFORE
    assert samples[1].tolist() == [END, *chain.from_iterable([*range(10 * i, 10 * i + sizes[i])] for i in BEFORE[1])]


def test_many_remainders_share_samples(tmp_path: Path) -> None:
    """A hundred documents a tenth longer than a sample: 100 whole pieces, and 100 remainders in a tenth as many samples."""
    samples = packed(tmp_path, [[*range(10, 73), END, 5, 6, 7, 8, 9, END]] * 100, seq_length=64)
    assert 100 + 100 * 7 / 64 < len(samples) < 100 + 100 * 7 / 64 + 3


def test_a_remainder_sees_no_neighbour_and_its_first_token_is_not_predicted(tmp_path: Path) -> None:
    """The loss is the mean over the targets of the pieces, each read alone at its positions."""
    torch.manual_seed(0)
    settings = PretrainConfig(
        model=ModelConfig(
            vocab_size=110, hidden_size=8, num_layers=2, num_attention_heads=2, max_position_embeddings=16
        ),
        data=DataConfig(packing="best-fit", seq_length=8),
    )
    model = build_model(settings.model, 1, END).eval()
    task = Gpt2(settings)
    task.__dict__["special_ids"] = (1, END)
    samples = packed(tmp_path, LONG)
    assert any(sum(samples.pieces[one][1] > 0 for one in sample) > 1 for sample in samples.samples)
    batch = collate([samples[i] for i in range(len(samples))])
    losses = []
    for row in (samples[i].tolist() for i in range(len(samples))):
        # A piece begins behind MASKED, or with the END of the piece before it.
        begins = [at + (row[at] == MASKED) for at in range(len(row) - 1) if row[at] in (END, MASKED)]
        begins = [at for at in begins if row[at : at + 2] != [END, MASKED]]
        for begin, stop in zip(begins, [*begins[1:], len(row)], strict=True):
            piece = row[begin : stop if stop == len(row) else stop + (row[stop] == END)]
            ids = torch.tensor([[token for token in piece if token != MASKED]])
            if ids.shape[1] < 2:
                continue
            positions = torch.arange(begin, begin + ids.shape[1] - 1)[None]
            logits = model(input_ids=ids[:, :-1], position_ids=positions).logits
            losses.append(torch.nn.functional.cross_entropy(logits[0], ids[0, 1:], reduction="none"))
    # Of 77 tokens, the first ones of the 7 pieces that do not begin a document are not predicted.
    assert task.targets(batch).item() == sum(map(len, losses)) == 77 - 7
    assert task.loss(model, batch).item() == pytest.approx(torch.cat(losses).mean().item(), abs=1e-5)


def test_behind_no_token_begins_a_piece() -> None:
    mask = document_mask(torch.tensor([[END, 5, END, MASKED, 7, 8]]), END)[0, 0].int()
    assert mask.tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


def steps(part: Concatenated, *, total: int = 2, epochs: float | None = None, tokens: int | None = None) -> int:
    settings = replace(PretrainConfig(), data=DataConfig(packing="best-fit", seq_length=8, train_tokens=tokens))
    settings = replace(settings, engine=replace(settings.engine, num_train_epochs=epochs))
    found = data.training_steps(settings, ResolvedBatch(total, total, total, 1), part)
    assert found
    return found


def test_steps_count_the_samples_that_are_read(tmp_path: Path) -> None:
    """A hundred documents of 80 tokens, ten samples each: 1,000 samples an epoch, of 8 tokens."""
    part = packed(tmp_path, [[*range(10, 89), END]] * 100).corpus
    assert data.sample_tokens(DataConfig(packing="best-fit", seq_length=8), part) == 8
    assert [steps(part), steps(part, epochs=2), steps(part, epochs=0.25), steps(part, tokens=4000)] == [
        500,
        1000,
        125,
        250,
    ]
    assert steps(part, total=1000) == 1
    with pytest.raises(CourseError, match="less than one step of 1001 samples"):
        steps(part, total=1001)


def test_steps_of_documents_that_fit(corpus: Concatenated) -> None:
    """An epoch has two samples, of 6 and of 4 tokens: two steps of one, and one step of two."""
    assert [len(PackedDocuments(corpus, 8, None, seed, END)) for seed in (0, 1024)] == [2, 2]
    assert [steps(corpus, total=1), steps(corpus, total=2), steps(corpus, total=2, epochs=3)] == [2, 1, 3]


def test_a_run_whose_samples_cut_documents_is_not_resumed(tmp_path: Path) -> None:
    """`split documents` in data.json is missing from runs of earlier versions; without long documents it always is."""
    packed(tmp_path, LONG)
    for seq_length, split in ((8, {"split documents": 4}), (32, {})):
        run = tmp_path / f"run-{seq_length}"
        run.mkdir()
        chosen = DataConfig((tmp_path / "long",), tmp_path, "1", seq_length, "best-fit")
        settings = replace(PretrainConfig(), data=chosen)
        task = Gpt2(replace(settings, engine=replace(settings.engine, output_dir=run)))
        facts = task.identity()
        assert {name: value for name, value in facts.items() if name not in ("settings", "inputs")} == split
        (run / run_dir.DEEPSPEED).write_text('{"train_batch_size": 8}', encoding="utf8")
        batch = ResolvedBatch(8, 8, 8, 1)
        for stored, refused in ((facts, False), ({"inputs": facts["inputs"]}, bool(split))):
            (run / run_dir.DATA).write_text(json.dumps(stored), encoding="utf8")
            if refused:
                with pytest.raises(UsageError, match="^data.packing: not what the run in .* was trained with"):
                    run_dir._require_same(task, task.settings, batch, facts)
            else:
                run_dir._require_same(task, task.settings, batch, facts)
    stream = replace(task.settings, data=replace(chosen, seq_length=8, packing="stream"))
    assert Gpt2(stream).identity().keys() == {"settings", "inputs"}

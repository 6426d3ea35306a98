"""Trains the small model of notebook 4a once soundly and six times with a fault, each with three seeds.

`python -m tests.bench.faults` writes two files of course_lib/pretrain, which 4a.9 shows: faults.csv has the losses of
each run every ten steps, fault_ends.csv its last losses and what it writes. About three minutes on a core. The runs have
letters; what is wrong with each is in course_lib/exercises/by_hand.py. The classes are those of the library's by_hand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from course_lib.exercises.by_hand import FAULTS
from course_lib.notebooks import measured
from course_lib.pretrain import by_hand
from course_lib.pretrain.data import spread
from course_lib.pretrain.indexed import IndexedDataset
from course_lib.pretrain.products import TOKENS
from course_lib.subword import folder, products
from course_lib.world import genres
from torch import Tensor, nn

STEPS, BATCH, SEQ, EVERY, SEEDS, RATE = 150, 24, 32, 10, (0, 1, 2), 1e-2
# What differs in the runs with a fault: the rate, the number of documents, the share of dropout.
TOO_HIGH, FEW, DROPPED = 0.3, 8, 0.5
# Texts that the sound run reads, the tokens of each, and their beginning; the first one is shown.
TEXTS, TOKENS_OF_TEXT, PROMPT = 32, 25, "今日は"
SOUND, WARM_UP = "sound", 20
Row = dict[str, Any]


class Leaking(by_hand.Attention):
    """Attention whose mask begins one token too late: each token sees the next one."""

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, hidden = x.shape
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        future = torch.ones(seq, seq).triu(2).bool()
        read = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(future, -torch.inf).softmax(-1) @ v
        mixed: Tensor = self.c_proj(read.transpose(1, 2).reshape(batch, seq, hidden))
        return mixed


class Dropping(by_hand.Attention):
    """Attention whose result loses a share of its numbers, in training and evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), DROPPED, training=True)


@dataclass
class Data:
    """The documents of 4a.7, their vocabulary, and what encodes and decodes."""

    train: list[Tensor]
    held_out: list[Tensor]
    # Entropy of the program that wrote the held-out documents [nats per token]
    source: float
    codec: Any

    @property
    def end(self) -> int:
        return int(self.codec.tokenizer.token_to_id("</s>"))


def read() -> Data:
    """Read what 4a.7 reads; its held-out documents are every fortieth of the world's."""
    (path,) = TOKENS.path().glob("*.idx")
    data = IndexedDataset(path)
    documents = [torch.from_numpy(ids.astype("int64")) for ids in spread(data, 500_000)]
    step = round(len(data) / len(documents))
    written = list(genres.documents(len(data), seed=0))[::step][::10]
    codec = folder.load(products.tokenizer().path())
    held_out = documents[::10]
    assert [codec.decode(ids[:-1].tolist()) for ids in held_out[:9]] == [one.text for one in written[:9]]
    source = sum(one.bits for one in written) * np.log(2) / sum(map(len, held_out))
    return Data([ids for i, ids in enumerate(documents) if i % 10], held_out, float(source), codec)


def train(fault: str, seed: int, data: Data) -> tuple[nn.Module, list[Row], Row]:
    """Train with a fault, and return the model, the rows of the curve, and the last held-out loss, measured twice."""
    attention = {"leak": Leaking, "dropout": Dropping}.get(fault, by_hand.Attention)
    model = by_hand.fresh(data.codec.tokenizer.get_vocab_size(), seed, attention=attention)
    documents = {"copies": data.train[:FEW], "seen": data.held_out[:FEW]}.get(fault, data.train)
    batches = by_hand.draw(torch.cat(documents), STEPS, seed, BATCH, SEQ)
    tests = by_hand.draw(torch.cat(data.held_out[: FEW if fault == "seen" else None]), 1, batch=2 * BATCH, seq=SEQ)[0]

    def loss_of(batch: Tensor) -> Tensor:
        return by_hand.cross_entropy(model(batch[:, :-1]), batch[:, :-1] if fault == "shift" else batch[:, 1:])

    @torch.no_grad()
    def held_out() -> float:
        return round(loss_of(tests).item(), 4)

    optimizer, curve, losses = by_hand.AdamW(model.parameters()), list[Row](), list[float]()
    for t, batch in enumerate(batches, 1):
        loss = loss_of(batch)
        loss.backward()
        late = (1 + np.cos(np.pi * (t - WARM_UP) / (STEPS - WARM_UP))) / 2
        optimizer.step((TOO_HIGH if fault == "rate" else RATE) * (t / WARM_UP if t <= WARM_UP else late))
        losses.append(loss.item())
        if t == 1 or t % EVERY == 0:
            curve.append({"step": t, "train": round(float(np.mean(losses[-EVERY:])), 4), "held_out": held_out()})
    return model, curve, {"held_out": held_out(), "again": held_out()}


@torch.no_grad()
def written(model: nn.Module, data: Data) -> Tensor:
    """Return texts that the model draws with its own probabilities, behind the prompt: [texts, tokens]."""
    torch.manual_seed(1)
    ids = torch.tensor([[data.end, *data.codec.encode(PROMPT)]] * TEXTS)
    for _ in range(TOKENS_OF_TEXT):
        ids = torch.cat([ids, torch.multinomial(model(ids)[:, -1].softmax(-1), 1)], dim=1)
    return ids


@torch.no_grad()
def judged(texts: Tensor, sound: nn.Module, data: Data) -> Row:
    """Return what the sound run needs for a token of the texts [nats], and the first text."""
    behind = texts.shape[1] - TOKENS_OF_TEXT
    loss = by_hand.cross_entropy(sound(texts[:, :-1])[:, behind - 1 :], texts[:, behind:]).item()
    text = [*texts[0, 1:].tolist(), data.end]
    sample = data.codec.decode(text[: text.index(data.end)]).replace("\ufffd", "")
    return {"surprise": round(loss, 3), "sample": sample}


def runs(data: Data) -> Iterator[tuple[list[Row], Row]]:
    """Train all runs, and yield the rows of each, named by its letter."""
    letters = {fault: letter for letter, fault in FAULTS.items()}
    for seed in SEEDS:
        sound, curve, end = train(SOUND, seed, data)
        for fault in (SOUND, *sorted(letters, key=letters.__getitem__)):
            model, curve, end = (sound, curve, end) if fault == SOUND else train(fault, seed, data)
            about = {"run": letters.get(fault, SOUND), "seed": seed}
            row = {**about, "source": round(data.source, 4), **end, **judged(written(model, data), sound, data)}
            print(fault, curve[0], curve[-1], row, flush=True)
            yield [{**about, **each} for each in curve], row


def main() -> None:
    torch.set_num_threads(1)
    found = list(runs(read()))
    measured.write("pretrain/faults", [row for curve, _ in found for row in curve])
    measured.write("pretrain/fault_ends", [end for _, end in found])


if __name__ == "__main__":
    main()

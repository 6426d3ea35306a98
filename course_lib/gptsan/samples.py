"""Training samples, encoded examples reshuffled in each epoch with an optional spout vector, and the loss.

A sample depends only on the seed and its index, so a resumed run reads the same samples as an uninterrupted run.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.gptsan.examples import Array, Examples
from course_lib.gptsan.layouts import NO_TARGET, SpecialIds, pack
from course_lib.gptsan.swe import SubwordEncoding


def spout_vector(mode: str, label: int, width: int, rng: np.random.Generator) -> Array:
    """Return the spout input [width, fp32] for class `label`; modes as in run_training.py of tanreinama/GPTSAN."""
    if mode == "uniform":
        return rng.random(width, np.float32)
    one_hot: Array = np.eye(width, dtype=np.float32)[label % width]
    return one_hot


@lru_cache(2)
def _order(seed: int, epoch: int, examples: int) -> Array:
    return np.random.default_rng([seed, epoch, 1]).permutation(examples)


class Samples(torch.utils.data.Dataset[dict[str, Any]]):
    """Dataset of `number` samples: all examples once per epoch, with `shuffle` in a new order each time.

    The seed determines the order and the spout noise. Samples have a spout vector unless the mode is "none". They are
    not sorted by length, which would save padding: examples of one length are often of one class, and from batches of
    one class at a time the same steps learned less (tests/bench/README.md).
    """

    def __init__(self, examples: Examples, number: int, seed: int, mode: str, width: int, shuffle: bool = True) -> None:
        self.examples, self.number, self.seed = examples, number, seed
        self.mode, self.width, self.shuffle = mode, width, shuffle

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> dict[str, Any]:
        epoch, position = divmod(index, len(self.examples))
        if self.shuffle:
            position = int(_order(self.seed, epoch, len(self.examples))[position])
        sample: dict[str, Any] = dict(self.examples[position])
        if self.mode != "none":
            rng = np.random.default_rng([self.seed, index])
            sample["spout"] = spout_vector(self.mode, int(sample["i"]), self.width, rng)
        return sample


def encoded(texts: Iterable[str], label: int, encoding: SubwordEncoding, context: int) -> list[dict[str, Array]]:
    """Encode texts in memory as examples of one class, as `Examples` yields them; `context` is in tokens."""
    special = SpecialIds.of(encoding)
    rows = [row for text in texts for row in pack(text.splitlines(), encoding, special, context)]
    return [{"x": np.array(x), "y": np.array(y), "i": np.array(label)} for x, y in rows]


def collate(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Stack samples into tensors: x, y [B, T]; i [B]; spout [B, d_spout] if the samples have one.

    T is the length of the longest sample: positions behind its last target are padding.
    """
    longest = 1 + max(int(np.flatnonzero(sample["y"] != NO_TARGET).max(initial=0)) for sample in samples)
    cut = {"x": slice(longest), "y": slice(longest)}
    return {
        name: torch.from_numpy(np.stack([sample[name][cut.get(name, ...)] for sample in samples]))
        for name in samples[0]
    }


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy [nats] and the mean of (log Z)² over the positions with a target, 0 without any.

    `logits` are [B, T, V]; `targets` are [B, T], with NO_TARGET at positions without a target.
    """
    learned = targets != NO_TARGET
    chosen, wanted = logits[learned].float(), targets[learned]
    count = max(len(wanted), 1)
    log_z = chosen.logsumexp(-1)
    return F.cross_entropy(chosen, wanted, reduction="sum") / count, log_z.square().sum() / count

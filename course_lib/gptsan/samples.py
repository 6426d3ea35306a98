"""Training samples: encoded examples, reshuffled in each epoch, with an optional spout vector.

A sample depends only on the seed and its index, so a resumed run reads the same samples as an uninterrupted run.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from course_lib.gptsan.examples import Examples

Vector = npt.NDArray[np.float32]


def spout_vector(mode: str, label: int, width: int, rng: np.random.Generator) -> Vector:
    """Return the spout input vector [width] for an example from class `label`.

    The modes (SpoutConfig) are those in run_training.py in tanreinama/GPTSAN.
    """
    if mode == "uniform":
        return rng.random(width, np.float32)
    vector = np.zeros(width, np.float32)
    if mode == "half_onehot":
        vector[label % (width // 2)] = 1
        vector[width // 2 :] = rng.random(width - width // 2, np.float32)
    else:
        vector[label % width] = 1
    return vector


@lru_cache(2)
def _order(seed: int, epoch: int, examples: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng([seed, epoch, 1]).permutation(examples)


class Samples(torch.utils.data.Dataset[dict[str, Any]]):
    """Dataset of `number` samples that goes through all examples once per epoch.

    With `shuffle`, each epoch has a new random order. The seed determines the order and the spout noise. Samples have a
    spout vector of the given width and mode (see `spout_vector`), or none if the mode is "none".
    """

    def __init__(self, examples: Examples, number: int, seed: int, mode: str, width: int, shuffle: bool = True) -> None:
        self.examples, self.number, self.seed = examples, number, seed
        self.mode, self.width, self.shuffle = mode, width, shuffle

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.number:
            raise IndexError(index)
        epoch, position = divmod(index, len(self.examples))
        if self.shuffle:
            position = int(_order(self.seed, epoch, len(self.examples))[position])
        sample: dict[str, Any] = dict(self.examples[position])
        if self.mode != "none":
            rng = np.random.default_rng([self.seed, index])
            sample["spout"] = spout_vector(self.mode, int(sample["i"]), self.width, rng)
        return sample


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Stack samples into tensors: x, y [B, T]; i, num_input [B]; spout [B, d_spout] if the samples have one."""
    return {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}

"""The training samples: encoded examples, shuffled anew in each epoch, each with the vector for the spout.

A sample depends only on the seed and its index. So a resumed run reads the same samples as an uninterrupted one.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from course_lib.gptsan.examples import Examples

Vector = npt.NDArray[np.float32]


def spout_vector(mode: str, label: int, width: int, rng: np.random.Generator) -> Vector:
    """The input vector [width] of the spout for an example of class `label`.

    The modes are those of run_training.py in tanreinama/GPTSAN:

    - `uniform`: uniform noise from [0, 1), whatever the class;
    - `onehot`: 1 at `label` modulo `width`, 0 elsewhere;
    - `half_onehot`: a one-hot vector in the first half of the width, uniform noise in the second half.
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


class Samples(torch.utils.data.Dataset[dict[str, Any]]):
    """A dataset of `number` samples that goes through all examples once per epoch, in a new random order each time."""

    def __init__(self, examples: Examples, number: int, seed: int, mode: str, width: int, shuffle: bool = True) -> None:
        """Prepares the dataset; no example is read yet.

        Args:
            examples: the encoded examples.
            number: number of samples; more than the examples for several epochs.
            seed: seed of the order and of the spout's noise.
            mode: mode of the spout (see `spout_vector`), or "none" for samples without a spout vector.
            width: width of the spout.
            shuffle: False to keep the examples in order.
        """
        self.examples, self.number, self.seed = examples, number, seed
        self.mode, self.width, self.shuffle = mode, width, shuffle
        self._order = lru_cache(2)(self._epoch)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.number:
            raise IndexError(index)
        epoch, position = divmod(index, len(self.examples))
        sample: dict[str, Any] = dict(self.examples[int(self._order(epoch)[position]) if self.shuffle else position])
        if self.mode != "none":
            rng = np.random.default_rng([self.seed, index])
            sample["spout"] = spout_vector(self.mode, int(sample["i"]), self.width, rng)
        return sample

    def _epoch(self, number: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self.seed, number, 1]).permutation(len(self.examples))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_order"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._order = lru_cache(2)(self._epoch)


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Stacks samples into tensors: x, y [B, T]; i, num_input [B]; spout [B, d_spout] if the samples have one."""
    return {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}

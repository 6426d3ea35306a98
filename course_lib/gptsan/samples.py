"""What training reads: encoded examples in their shuffled order, epoch after epoch, with what feeds the spout.

Everything follows from the seed and the number of the sample, so that a resumed run goes on with what an unbroken one would have read.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from course_lib.gptsan.examples import Examples

Vector = npt.NDArray[np.float32]


def spout_vector(mode: str, label: int, width: int, rng: np.random.Generator) -> Vector:
    """What feeds the spout for an example of class `label`: [width].

    As run_training.py of the original: `uniform` is noise from [0, 1) whatever the class; `onehot` is 1 at label modulo width;
    `half_onehot` is that in the first half of the width, and noise in the second.
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
    """`number` samples: all examples in an order of their own for each epoch. With `shuffle=False` each example once, in order."""

    def __init__(self, examples: Examples, number: int, seed: int, mode: str, width: int, shuffle: bool = True) -> None:
        """`mode` and `width` are those of the spout; mode "none" leaves it out."""
        self.examples, self.number, self.seed = examples, number, seed
        self.mode, self.width, self.shuffle = mode, width, shuffle
        self._order = lru_cache(2)(self._epoch)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.number:
            raise IndexError(index)
        epoch, place = divmod(index, len(self.examples))
        sample: dict[str, Any] = dict(self.examples[int(self._order(epoch)[place]) if self.shuffle else place])
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
    """Samples as tensors: x, y [B, T]; i, num_input [B]; spout [B, d_spout] where there is one."""
    return {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}

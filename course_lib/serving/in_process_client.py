"""The reader in this process, asked with the same tensors as a server: for machines without Triton."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from course_lib.serving import reader
from course_lib.serving.engine import Engine
from course_lib.serving.tensors import outputs, rows_of, wants_log_probs


class Local:
    """Stands where a Client stands."""

    def __init__(self, folder: Path) -> None:
        """Raises CourseError as reader.load does."""
        self.engine = Engine(reader.load(folder))

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """As Client.infer. Raises UsageError for a request that the engine cannot run."""
        rows = len(tensors["input_ids"])
        found = {}
        for name, values in tensors.items():
            array = np.asarray(values)
            found[name] = torch.from_numpy(np.full((rows, 1), array) if array.ndim == 0 else array)
        asked = rows_of(found)
        answers = self.engine.run(asked, wants_log_probs(found))
        made = outputs(found, asked, answers, self.engine.end_id)
        return {name: tensor.numpy() for name, tensor in made.items()}

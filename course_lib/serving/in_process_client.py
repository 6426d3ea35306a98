"""A client that runs the engine in this process, for machines without Triton."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from course_lib.checkpoints.compute import device
from course_lib.serving import reader
from course_lib.serving.engine import Engine
from course_lib.serving.tensors import outputs, rows_of, wants_log_probs


class Local:
    """Drop-in replacement for `Client` that runs the engine in this process."""

    def __init__(self, folder: Path) -> None:
        """Load an exported folder. Raises CourseError if the folder is damaged."""
        self.engine = Engine(reader.load(folder, device=device()))

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the output tensors for one request, like Client.infer. Raises UsageError if the request is invalid."""
        rows = len(tensors["input_ids"])
        arrays = {name: np.asarray(values) for name, values in tensors.items()}
        request = {
            name: torch.from_numpy(np.full((rows, 1), array) if array.ndim == 0 else array)
            for name, array in arrays.items()
        }
        asked = rows_of(request)
        answers = self.engine.run(asked, wants_log_probs(request))
        return {name: tensor.numpy() for name, tensor in outputs(request, asked, answers, self.engine.end_id).items()}

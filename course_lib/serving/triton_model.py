"""The model that Triton's Python backend runs: an exported folder under our engine. Imported by the server only.

Tensors cross by DLPack: with numpy 2, the backend's own numpy conversions give wrong values without an error.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.utils.dlpack
import triton_python_backend_utils as pb_utils
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.serving import reader, requests
from course_lib.serving.engine import Engine
from course_lib.serving.repository import FOLDER
from course_lib.serving.row import Row


@dataclass
class _Asked:
    """A request with its rows, or what is wrong with it."""

    request: Any
    tensors: dict[str, Tensor]
    rows: list[Row]
    error: str | None = None


class TritonPythonModel:
    """What the backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the folder that the model's config names."""
        folder = Path(json.loads(args["model_config"])["parameters"][FOLDER]["string_value"])
        try:
            self.engine = Engine(reader.load(folder))
        except CourseError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, arrived: Sequence[Any]) -> list[Any]:
        """Runs the requests that arrived together as one batch, and answers each by itself."""
        asked = [self._read(request) for request in arrived]
        good = [one for one in asked if one.error is None]
        try:
            found = self._run(good)
        except Exception:  # such as too little memory for all: each by itself, so that none fails for another
            found = {}
            for one in good:
                try:
                    found |= self._run([one])
                except Exception as error:
                    one.error = f"{type(error).__name__}: {error}"
        return [found[id(one)] if one.error is None else _failed(one.error) for one in asked]

    def _read(self, request: Any) -> _Asked:
        tensors: dict[str, Tensor] = {}
        try:
            for name in requests.NAMES:
                tensor = pb_utils.get_input_tensor_by_name(request, name)
                if tensor is not None:
                    tensors[name] = torch.utils.dlpack.from_dlpack(tensor.to_dlpack())
            rows = requests.rows(tensors)
            for row in rows:
                self.engine.check(row)
        except Exception as error:
            return _Asked(request, tensors, [], str(error))
        return _Asked(request, tensors, rows)

    def _run(self, asked: Sequence[_Asked]) -> dict[int, Any]:
        """The responses by the id of what was asked."""
        rows = [row for one in asked for row in one.rows]
        answers = iter(self.engine.run(rows, any(requests.wants_log_probs(one.tensors) for one in asked)))
        found = {}
        for one in asked:
            own = [next(answers) for _ in one.rows]
            tensors = requests.outputs(one.tensors, one.rows, own, self.engine.end_id)
            wanted = one.request.requested_output_names()
            sent = [pb_utils.Tensor.from_dlpack(name, tensor) for name, tensor in tensors.items() if name in wanted]
            found[id(one)] = pb_utils.InferenceResponse(sent)
        return found


def _failed(message: str) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message))

"""The model that Triton's Python backend runs: an exported folder under our engine. Imported by the server only.

Tensors cross by DLPack: with numpy 2, the backend's own numpy conversions give wrong values without an error.

Triton's batcher does not put requests with different optional tensors into one batch. So `execute` only takes requests in, and a thread runs
all that have arrived meanwhile as one batch of the engine.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch.utils.dlpack
import triton_python_backend_utils as pb_utils
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.serving import reader
from course_lib.serving.engine import Engine
from course_lib.serving.repository import FOLDER
from course_lib.serving.request import Row
from course_lib.serving.tensors import NAMES, outputs, rows_of, wants_log_probs


@dataclass(frozen=True)
class Asked:
    """A request that waits for its answer."""

    sender: Any
    outputs: frozenset[str]  # that the client wants
    tensors: Mapping[str, Tensor]
    rows: list[Row]

    def answer(self, tensors: Mapping[str, Tensor]) -> None:
        """Sends the tensors that the client wants."""
        sent = [pb_utils.Tensor.from_dlpack(name, tensor) for name, tensor in tensors.items() if name in self.outputs]
        _send(self.sender, pb_utils.InferenceResponse(sent))


class TritonPythonModel:
    """What the backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the folder that the model's config names."""
        folder = Path(json.loads(args["model_config"])["parameters"][FOLDER]["string_value"])
        try:
            self.engine = Engine(reader.load(folder, device="cuda" if torch.cuda.is_available() else "cpu"))
        except CourseError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self.waiting: SimpleQueue[Asked | None] = SimpleQueue()
        self.worker = Thread(target=self._work)
        self.worker.start()

    def execute(self, arrived: Sequence[Any]) -> None:
        """Takes requests in; what is wrong with one is answered at once."""
        for request in arrived:
            sender = request.get_response_sender()
            try:
                self.waiting.put(self._read(request, sender))
            except Exception as error:
                _fail(sender, error)

    def finalize(self) -> None:
        """Answers what has arrived, and ends."""
        self.waiting.put(None)
        self.worker.join()

    def _read(self, request: Any, sender: Any) -> Asked:
        """Raises UsageError for a request that cannot be run."""
        tensors = {}
        for name in NAMES:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                tensors[name] = torch.utils.dlpack.from_dlpack(tensor.to_dlpack()).clone()
        rows = rows_of(tensors)
        for row in rows:
            self.engine.check(row)
        return Asked(sender, frozenset(request.requested_output_names()), tensors, rows)

    def _work(self) -> None:
        while (first := self.waiting.get()) is not None:
            batch = [first]
            while not self.waiting.empty():
                another = self.waiting.get()
                if another is None:
                    self.waiting.put(None)
                    break
                batch.append(another)
            try:
                answers = self._run(batch)
            except Exception:  # such as too little memory for all: each by itself, so that none fails for another
                for one in batch:
                    try:
                        one.answer(self._run([one])[0])
                    except Exception as error:
                        _fail(one.sender, error)
            else:
                for one, tensors in zip(batch, answers, strict=True):
                    try:
                        one.answer(tensors)
                    except Exception as error:  # such as no room in shared memory: the others still get theirs
                        _fail(one.sender, error)

    def _run(self, batch: Sequence[Asked]) -> list[dict[str, Tensor]]:
        """The output tensors of each request."""
        log_probs = any(wants_log_probs(one.tensors) for one in batch)
        answers = iter(self.engine.run([row for one in batch for row in one.rows], log_probs))
        return [outputs(one.tensors, one.rows, [next(answers) for _ in one.rows], self.engine.end_id) for one in batch]


def _send(sender: Any, response: Any) -> None:
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _fail(sender: Any, error: Exception) -> None:
    """Answers with the error; whatever happens, the thread that answers goes on."""
    said = str(error) if isinstance(error, CourseError) else f"{type(error).__name__}: {error}"
    with suppress(Exception):
        _send(sender, pb_utils.InferenceResponse(error=pb_utils.TritonError(said)))

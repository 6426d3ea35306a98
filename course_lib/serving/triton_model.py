"""The model run by Triton's Python backend: an exported folder with this course's engine.

Only the server imports this module. Tensors are passed with DLPack, because with NumPy 2, the backend's own NumPy
conversions return wrong values without an error.

Triton does not batch requests that have different optional tensors. Therefore, `execute` only queues the requests, and
a thread runs all queued requests as one engine batch.
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

from course_lib.checkpoints.compute import device
from course_lib.errors import CourseError
from course_lib.serving import reader
from course_lib.serving.engine import Engine
from course_lib.serving.repository import FOLDER
from course_lib.serving.request import Row
from course_lib.serving.tensors import NAMES, outputs, rows_of, wants_log_probs


@dataclass(frozen=True)
class Asked:
    """A request that is waiting for its response."""

    sender: Any
    outputs: frozenset[str]  # names of the output tensors that the client requested
    tensors: Mapping[str, Tensor]
    rows: list[Row]

    def answer(self, tensors: Mapping[str, Tensor]) -> None:
        """Send the tensors that the client requested."""
        sent = [pb_utils.Tensor.from_dlpack(name, tensor) for name, tensor in tensors.items() if name in self.outputs]
        _send(self.sender, pb_utils.InferenceResponse(sent))


class TritonPythonModel:
    """The class that the backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the folder named in the model's configuration, and start the thread that processes requests."""
        folder = Path(json.loads(args["model_config"])["parameters"][FOLDER]["string_value"])
        try:
            self.engine = Engine(reader.load(folder, device=device()))
        except CourseError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self.waiting: SimpleQueue[Asked | None] = SimpleQueue()
        self.worker = Thread(target=self._work)
        self.worker.start()

    def execute(self, arrived: Sequence[Any]) -> None:
        """Queue the requests; send an error response immediately for each invalid request."""
        for request in arrived:
            sender = request.get_response_sender()
            try:
                self.waiting.put(self._read(request, sender))
            except Exception as error:
                _fail(sender, error)

    def finalize(self) -> None:
        """Process the queued requests and stop the thread."""
        self.waiting.put(None)
        self.worker.join()

    def _read(self, request: Any, sender: Any) -> Asked:
        """Read and validate a request. Raises UsageError if the engine cannot run it."""
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
            answers: list[dict[str, Tensor]] | None = None
            # If this fails, for example because memory is too small for the batch, run each request separately below,
            # so that none fails because of another
            with suppress(Exception):
                answers = self._run(batch)
            for index, one in enumerate(batch):
                try:
                    one.answer(answers[index] if answers else self._run([one])[0])
                # For example, shared memory may be full; the other requests still receive their responses
                except Exception as error:
                    _fail(one.sender, error)

    def _run(self, batch: Sequence[Asked]) -> list[dict[str, Tensor]]:
        """Return the output tensors for each request."""
        log_probs = any(wants_log_probs(one.tensors) for one in batch)
        answers = iter(self.engine.run([row for one in batch for row in one.rows], log_probs))
        return [outputs(one.tensors, one.rows, [next(answers) for _ in one.rows], self.engine.end_id) for one in batch]


def _send(sender: Any, response: Any) -> None:
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _fail(sender: Any, error: Exception) -> None:
    """Send an error response. Suppress any exception, so that the calling thread continues."""
    message = str(error) if isinstance(error, CourseError) else f"{type(error).__name__}: {error}"
    with suppress(Exception):
        _send(sender, pb_utils.InferenceResponse(error=pb_utils.TritonError(message)))

"""The model run by Triton's Python backend: an exported folder with this course's engine. Only the server imports it.

Tensors are passed with DLPack, because with NumPy 2, the backend's NumPy conversions return wrong values without an
error. Triton calls `execute` with the next requests of its queue. `execute` hands them to the scheduler's thread and
returns when they have joined the batch. While the batch is full, the other requests wait in Triton's queue, where its
limit and other instances can reach them.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch.utils.dlpack
import triton_python_backend_utils as pb_utils

from course_lib.checkpoints.compute import device
from course_lib.errors import CourseError, UsageError
from course_lib.serving import reader
from course_lib.serving.engine import Engine
from course_lib.serving.layout import native, shown
from course_lib.serving.repository import WEIGHTS_KEY
from course_lib.serving.request import INPUTS, Answer, outputs, rows_of, wants_log_probs
from course_lib.serving.scheduler import Request, Scheduler


class TritonPythonModel:
    """The class that the backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the folder named in the model's configuration, and start the thread that answers requests."""
        folder = json.loads(args["model_config"])["parameters"][WEIGHTS_KEY]["string_value"]
        try:
            self.engine = Engine.of(reader.load(Path(native(folder)), device=device()))
        except CourseError as error:
            raise pb_utils.TritonModelException(shown(str(error))) from error
        self.scheduler = Scheduler(self.engine)

    def execute(self, arrived: Sequence[Any]) -> None:
        """Hand the requests to the scheduler; send an error response immediately for each invalid request."""
        requests = []
        for request in arrived:
            sender = request.get_response_sender()
            try:
                requests.append(self._read(request, sender))
            except Exception as error:
                _fail(sender, error)
        try:
            self.scheduler.submit(requests)
        except Exception as error:
            for request in requests:
                request.fail(error)

    def finalize(self) -> None:
        """Answer the remaining requests and stop the thread."""
        self.scheduler.stop()

    def _read(self, request: Any, sender: Any) -> Request:
        """Read and validate a request. Raises UsageError if the engine cannot run it."""
        tensors = {}
        for name in (tensor.name for tensor in INPUTS):
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                tensors[name] = torch.utils.dlpack.from_dlpack(tensor.to_dlpack()).clone()
        rows = rows_of(tensors)
        for row in rows:
            self.engine.check(row)
        wanted = frozenset(request.requested_output_names())

        def answer(answers: list[Answer]) -> None:
            found = outputs(tensors, rows, answers, self.engine.end_id)
            sent = [pb_utils.Tensor.from_dlpack(name, tensor) for name, tensor in found.items() if name in wanted]
            sender.send(pb_utils.InferenceResponse(sent), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

        return Request(rows, wants_log_probs(tensors), answer, partial(_fail, sender), sender.is_cancelled)


def _fail(sender: Any, error: Exception) -> None:
    """Send an error response. Suppress any exception, so that the calling thread continues."""
    kind, message = pb_utils.TritonError.INTERNAL, f"{type(error).__name__}: {error}"
    if isinstance(error, CourseError):
        kind, message = pb_utils.TritonError.UNAVAILABLE, str(error)
    if isinstance(error, UsageError):
        kind = pb_utils.TritonError.INVALID_ARG
    response = pb_utils.InferenceResponse(error=pb_utils.TritonError(shown(message), kind))
    with suppress(Exception):
        sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

"""An HTTP server that runs the engine in this process, for machines without Triton."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checkpoints.compute import device
from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr
from course_lib.serving import reader
from course_lib.serving.client import DTYPES
from course_lib.serving.engine import Engine
from course_lib.serving.repository import INPUTS, LOOPBACK, MODEL, OUTPUTS
from course_lib.serving.request import Answer
from course_lib.serving.scheduler import Request, Scheduler
from course_lib.serving.tensors import outputs, rows_of, wants_log_probs


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Serve an exported folder on a free port of this machine only, and yield its HOST:PORT.

    The server answers Triton's inference request in JSON, not its binary form, and batches texts like the real one.
    Raises CourseError if the folder is damaged.
    """
    scheduler = Scheduler(Engine(reader.load(folder, device=device())))
    server = _Server((LOOPBACK, 0), _Handler)
    server.scheduler = scheduler
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{LOOPBACK}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        scheduler.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that may wait until their thread starts
    request_queue_size = 128
    scheduler: Scheduler


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        """Answer an inference request."""
        status, answer = 200, {}
        try:
            if self.path != f"/v2/models/{MODEL}/infer":
                raise CourseError(f"{self.path}: no such address; allowed: /v2/models/{MODEL}/infer")
            answer = self._infer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        # Whatever is wrong with a request, the client is told.
        except Exception as error:
            status, answer = 400, {"error": str(error)}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing for a request."""

    def _infer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        given, wanted = inputs(asked), wanted_outputs(asked)
        rows, engine = rows_of(given), self.server.scheduler.engine
        for row in rows:
            engine.check(row)
        future: Future[list[Answer]] = Future()
        request = Request(rows, wants_log_probs(given), future.set_result, future.set_exception)
        self.server.scheduler.submit([request])
        answered = outputs(given, rows, future.result(), engine.end_id)
        types = {tensor.name: tensor.dtype for tensor in OUTPUTS}
        found = [
            {"name": name, "datatype": types[name], "shape": list(tensor.shape), "data": tensor.flatten().tolist()}
            for name, tensor in answered.items()
            if name in wanted
        ]
        return {"model_name": MODEL, "model_version": "1", "outputs": found}


def wanted_outputs(asked: Mapping[str, Any]) -> set[str]:
    """Return the names of the outputs that a request asks for, all if it names none, as Triton does."""
    names = {tensor.name for tensor in OUTPUTS}
    wanted = {tensor["name"] for tensor in asked.get("outputs", [])}
    if unknown := sorted(wanted - names):
        raise UsageError(
            tr("outputs: {name}: no such output; allowed: {allowed}", name=unknown[0], allowed=", ".join(sorted(names)))
        )
    return wanted or names


def inputs(asked: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a request from its JSON, by name."""
    given, required = {one["name"] for one in asked["inputs"]}, {one.name for one in INPUTS if not one.optional}
    if unknown := sorted(given - {one.name for one in INPUTS}):
        raise UsageError(tr("inputs: {name}: no such input", name=unknown[0]))
    if missing := sorted(required - given):
        raise UsageError(tr("inputs: {name}: missing", name=missing[0]))
    return {
        one["name"]: torch.from_numpy(np.array(one["data"], DTYPES[one["datatype"]]).reshape(one["shape"]))
        for one in asked["inputs"]
    }

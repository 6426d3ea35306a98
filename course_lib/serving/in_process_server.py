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
from course_lib.language.words import mark, tr
from course_lib.serving import reader
from course_lib.serving.client import DTYPES
from course_lib.serving.engine import Engine
from course_lib.serving.repository import INPUTS, LOOPBACK, MODEL, OUTPUTS, TritonTensor
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
    declared, given = {one.name: one for one in INPUTS}, {one["name"] for one in asked["inputs"]}
    if unknown := sorted(given - set(declared)):
        raise UsageError(tr("inputs: {name}: no such input", name=unknown[0]))
    if missing := sorted(name for name, one in declared.items() if not one.optional and name not in given):
        raise UsageError(tr("inputs: {name}: missing", name=missing[0]))
    rows = next(sum(one["shape"][:1]) for one in asked["inputs"] if one["name"] == "input_ids")
    return {one["name"]: _tensor(one, declared[one["name"]], rows) for one in asked["inputs"]}


def _tensor(sent: Mapping[str, Any], declared: TritonTensor, rows: int) -> Tensor:
    """Return one tensor of a request with so many rows; Triton, too, refuses what was not declared."""
    name, kind, shape = sent["name"], sent["datatype"], sent["shape"]
    if kind != declared.dtype:
        message = mark("{name}: {kind} is not allowed; allowed: {allowed}")
        raise UsageError(tr(message, name=name, kind=kind, allowed=declared.dtype))
    sizes = (max(rows, 1), *declared.dims)
    fits = [size >= 0 and allowed in (size, -1) for size, allowed in zip(shape, sizes, strict=False)]
    if len(shape) != len(sizes) or not all(fits):
        allowed = ", ".join("n" if size == -1 else str(size) for size in sizes)
        message = mark("{name}: shape {shape} is not allowed; allowed: [{allowed}]")
        raise UsageError(tr(message, name=name, shape=shape, allowed=allowed))
    return torch.from_numpy(np.array(sent["data"], DTYPES[kind]).reshape(shape))

"""The servers of an exported folder: Triton, and one in this process for machines without Triton.

`running(folder)` is a context manager that starts the Triton of the nvidia-pytriton wheel, by default on the loopback
address only; `serve(running(folder))` runs it in the foreground. Triton runs the model in a process of its own
(triton_model.py). `running_in_process(folder)` answers the same requests in a thread. Only that one needs torch here.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx
import psutil

from course_lib.errors import CourseError
from course_lib.files import temporary_folder
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.serving import repository
from course_lib.serving.repository import QUEUE
from course_lib.serving.request import (
    MODEL,
    OUTPUTS,
    Answer,
    outputs,
    rows_of,
    tensors_from_json,
    wanted_outputs,
    wants_log_probs,
)

if TYPE_CHECKING:
    from course_lib.serving.scheduler import Scheduler

LOOPBACK = "127.0.0.1"

# Parts of the wheel: the program that runs the model, and the other files of the Python backend
STUB = Path("python_backend_stubs", f"{sys.version_info.major}.{sys.version_info.minor}", "triton_python_backend_stub")
BACKEND = [Path("backends", "python", name) for name in ("libtriton_python.so", "triton_python_backend_utils.py")]
SHARED = Path("/dev/shm")  # memory shared by Triton and the model process
TAKEN = tr_noop("Address already in use")  # the system's word, which `tr` gets
DRAIN = 30  # seconds that running requests have to finish when the server is stopped
PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process receives when its parent dies
MODEL_FAILED = re.compile(r'Failed to create instance: (?:TritonModelException: )?(.+?)(?:\\n|"?$)', re.M)
# Triton's further interfaces, closed: with shared memory and the names that errors tell, a client could write into the
# memory of the model's process (CVE-2025-23319, -23320, -23334). The value is a line break, which no header can have.
CLOSED = "shared-memory,model-repository,trace,logging:course-closed=\n"
NEEDS = (
    "pip install --no-deps nvidia-pytriton==0.7.0 (Linux x86-64; Python 3.8 to 3.13), "
    "or the container nvcr.io/nvidia/tritonserver:26.11-py3: docs/commands.md"
)


def find() -> Path:
    """Return the folder of Triton in the nvidia-pytriton wheel. Raises CourseError if it is not installed."""
    spec = importlib.util.find_spec("pytriton")
    for package in spec.submodule_search_locations or [] if spec else []:
        if Path(package, "tritonserver", STUB).is_file():
            return Path(package, "tritonserver")
    raise CourseError(tr("Triton is not installed: {needs}", needs=NEEDS))


@dataclass
class Server:
    """A running server."""

    http: str  # host:port, also for /v2/health/live and /v2/health/ready
    grpc: str
    metrics: str  # URL of the metrics in Prometheus' text format
    log: Path
    process: subprocess.Popen[bytes]
    # the processes that run the model, once it is loaded
    models: list[psutil.Process] = field(default_factory=list)

    def require_alive(self) -> None:
        """Raise CourseError, with an excerpt from the log, if the server or a process of the model has exited."""
        if (code := self.process.poll()) is not None:
            raise CourseError(tr("Triton ended with code {code}: {tail}", code=code, tail=tail(self.log)))
        # Triton 2.51 stays ready then, and answers every request with an error.
        for model in self.models:
            if not _runs(model):
                reason = tr_noop("the model's process {pid} ended; the system kills it if memory runs out")
                raise CourseError(tr(reason, pid=model.pid))


@contextlib.contextmanager
def running(
    folder: Path,
    port: int | None = None,
    address: str = LOOPBACK,
    timeout: float = 300,
    threads: int | None = None,
    instances: int = 1,
    queue: int = QUEUE,
) -> Iterator[Server]:
    """Serve an exported folder inside the context.

    On exit, the server refuses new requests and answers those in progress. It also stops if this process is killed.

    HTTP listens on `port`, gRPC on the next one, and the metrics, on the loopback address only, on the one after it;
    None takes free ports. Each of the `instances` processes answers other requests, with `threads` CPU threads, by
    default its share of the cores. `timeout` is for the start [s]; Triton refuses requests beyond `queue` waiting ones.
    """
    inside = find()
    if threads is None and instances > 1:
        threads = max(1, (os.cpu_count() or 1) // instances)
    with temporary_folder("course-triton") as work:
        repository.write(folder, work / "models", instances=instances, queue=queue)
        backend = work / "backends" / "python"
        backend.mkdir(parents=True)
        for part in (STUB, *BACKEND):
            (backend / part.name).symlink_to(inside / part)
        hosts = (address, address, LOOPBACK)
        http, grpc, metrics = (_usable(host, port + index if port else 0) for index, host in enumerate(hosts))
        shared = f"course_{os.getpid()}_{secrets.token_hex(4)}_"
        command = [
            str(inside / "bin" / "tritonserver"),
            # Relative to `work`, whose path may have characters that Python in the stub does not find (layout.native)
            "--model-repository=models",
            "--backend-directory=backends",
            *(f"--http-address={address}", f"--http-port={http}"),
            *(f"--grpc-address={address}", f"--grpc-port={grpc}"),
            *(f"--metrics-address={LOOPBACK}", f"--metrics-port={metrics}"),
            *(f"--http-restricted-api={CLOSED}", f"--grpc-restricted-protocol={CLOSED}"),
            f"--exit-timeout-secs={DRAIN}",
            f"--backend-config=python,shm-region-prefix-name={shared}",
            f"--backend-config=python,stub-timeout-seconds={int(timeout)}",
        ]
        prctl, log = ctypes.CDLL(None).prctl, work / "triton.log"
        with open(log, "wb") as sink:
            process = subprocess.Popen(
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(inside, threads),
                start_new_session=True,
                # The server must stop when this process exits, even if it is killed
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        addresses = f"{address}:{http}", f"{address}:{grpc}", f"http://{LOOPBACK}:{metrics}/metrics"
        server = Server(*addresses, log, process)
        try:
            _wait(server, timeout)
            family = psutil.Process(process.pid).children(recursive=True)
            server.models = [one for one in family if one.name() == STUB.name]
            yield server
        finally:
            _stop(process)
            for leftover in SHARED.glob(f"{shared}*"):
                leftover.unlink(missing_ok=True)


def _runs(process: psutil.Process) -> bool:
    """Return whether a process has not ended; Triton leaves one that ended as a zombie."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def serve(starting: contextlib.AbstractContextManager[Server]) -> None:
    """Serve until SIGINT or SIGTERM; `starting` is what `running` returns, not yet entered."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with starting as server:
            facts = {"http": server.http, "grpc": server.grpc, "metrics": server.metrics}
            print(tr("serving: http://{http}, grpc://{grpc}, metrics {metrics}; Ctrl-C stops it", **facts), flush=True)
            try:
                while True:
                    server.require_alive()
                    time.sleep(0.2)
            except KeyboardInterrupt:
                print(tr("refusing new requests, answering those in progress; Ctrl-C again stops at once"), flush=True)
                raise
    except KeyboardInterrupt:
        print(tr("stopped"))


def tail(log: Path) -> str:
    """Return the reason that the log gives for the failure of the server or the model, as one line."""
    content = log.read_text(errors="replace")
    if failure := MODEL_FAILED.search(content):
        return failure[1]
    # Error lines begin with E, date, time and process
    lines = [line for line in content.splitlines() if re.match(r"E\d{4} |error:", line)]
    return " | ".join((lines or content.splitlines())[-3:])


def _environment(inside: Path, threads: int | None) -> dict[str, str]:
    """Return the server's environment; the stub's interpreter is that of the first python3 on PATH."""
    libraries = [str(inside.parents[1] / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR")]
    paths = {"LD_LIBRARY_PATH": libraries, "PATH": [str(Path(sys.executable).parent)]}
    variables = {}
    for name, folders in paths.items():
        present = [each for each in (*folders, os.environ.get(name)) if each]
        variables[name] = ":".join(present)
    return os.environ | variables | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def bound(host: str, port: int) -> socket.socket:
    """Return a socket with this address, on a free port if it is 0. Raises CourseError if it cannot be used."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
    except OSError as error:
        probe.close()
        facts = {"host": host, "port": port, "strerror": tr(str(error.strerror))}
        raise CourseError(tr("{host}:{port}: {strerror}; choose others with --port", **facts)) from error
    return probe


def _usable(host: str, port: int) -> int:
    """Return the port, a free one if it is 0. Raises CourseError if it cannot be used."""
    with bound(host, port) as probe:
        return int(probe.getsockname()[1])


def _wait(server: Server, timeout: float) -> None:
    """Return when the server reports that it is ready for requests."""
    with progress(int(timeout), "s", "starting Triton") as bar:
        until = time.monotonic() + timeout
        while True:
            server.require_alive()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://{server.http}/v2/health/ready", timeout=2, trust_env=False).is_success:
                    return
            if time.monotonic() > until:
                facts = {"timeout": timeout, "tail": tail(server.log)}
                raise CourseError(tr("Triton was not ready after {timeout:g} s (--timeout): {tail}", **facts))
            bar.update(0.1)
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server and all processes that it started: SIGTERM, and SIGKILL after DRAIN seconds or another Ctrl-C."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(DRAIN + 5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# The server in this process


@contextlib.contextmanager
def running_in_process(folder: Path) -> Iterator[str]:
    """Serve an exported folder on a free port of this machine only, and yield its HOST:PORT.

    The server answers Triton's inference request in JSON, not its binary form, and batches texts like the real one.
    Raises CourseError if the folder is damaged.
    """
    from course_lib.checkpoints.compute import device
    from course_lib.serving import reader
    from course_lib.serving.engine import Engine
    from course_lib.serving.scheduler import Scheduler

    scheduler = Scheduler(Engine.of(reader.load(folder, device=device())))
    server = _HttpServer((LOOPBACK, 0), _Handler)
    server.scheduler = scheduler
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{LOOPBACK}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        scheduler.stop()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that may wait until their thread starts
    request_queue_size = 128
    scheduler: "Scheduler"


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer

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
        """Return the response to a request. Raises UsageError if it is invalid."""
        from course_lib.serving.scheduler import Request

        tensors, wanted = tensors_from_json(asked), wanted_outputs(asked)
        rows, engine = rows_of(tensors), self.server.scheduler.engine
        for row in rows:
            engine.check(row)
        future: Future[list[Answer]] = Future()
        request = Request(rows, wants_log_probs(tensors), future.set_result, future.set_exception)
        self.server.scheduler.submit([request])
        found = outputs(tensors, rows, future.result(), engine.end_id)
        dtypes = {tensor.name: tensor.dtype for tensor in OUTPUTS}
        sent = [
            {"name": name, "datatype": dtypes[name], "shape": list(tensor.shape), "data": tensor.flatten().tolist()}
            for name, tensor in found.items()
            if name in wanted
        ]
        return {"model_name": MODEL, "model_version": "1", "outputs": sent}

"""Local Triton server, which runs the executable from the nvidia-pytriton wheel.

`running(folders)` is a context manager that serves exported folders; `serve(running(folders))` runs the server in the
foreground. By default, the server listens only on the loopback address. This module does not import pytriton.
"""

import contextlib
import importlib.util
import math
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
from dataclasses import dataclass
from pathlib import Path

import httpx

from course_lib.errors import CourseError
from course_lib.files import temporary_folder
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.serving import lifeline, repository
from course_lib.serving.container import IMAGE
from course_lib.serving.repository import LOOPBACK, Limits

SHARED = Path("/dev/shm")  # memory shared by Triton and the model process
DRAIN = 30  # seconds that running requests have to finish when the server is stopped
MODEL_FAILED = re.compile(r'Failed to create instance: (?:TritonModelException: )?(.+?)(?:\\n|"?$)', re.M)
# Start of an error line in the log: date, time and process
LINE_START = re.compile(r"^E\d{4} [\d:.]+ \d+ ")
COMPLAINT = re.compile(f"{LINE_START.pattern}|error:", re.M)
NEEDS = (
    "pip install --no-deps nvidia-pytriton==0.7.0 (Linux x86-64; Python 3.8 to 3.13), "
    f"or the container {IMAGE}: `course serve DIR --print`"
)


def find() -> tuple[Path, ...]:
    """Return the parts of the nvidia-pytriton wheel that a server needs: the executable, and its Python backend."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise CourseError(tr("Triton is not installed: {needs}", needs=NEEDS))
    inside = Path(spec.submodule_search_locations[0]) / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = inside / "backends" / "python"
    stub = inside / "python_backend_stubs" / version / "triton_python_backend_stub"
    parts = (
        inside / "bin" / "tritonserver", python / "libtriton_python.so", python / "triton_python_backend_utils.py", stub
    )  # fmt: skip
    for part in parts:
        if not part.is_file():
            where = {"part": part.name, "version": version, "platform": sys.platform, "needs": NEEDS}
            raise CourseError(
                tr("the nvidia-pytriton wheel has no {part} for Python {version} on {platform}: {needs}", **where)
            )
    return parts


@dataclass
class Server:
    """A running server."""

    http: str  # host:port, also for /v2/health/live and /v2/health/ready
    grpc: str
    metrics: str  # URL of the metrics in Prometheus' text format
    models: tuple[str, ...]  # names in requests
    log: Path
    process: subprocess.Popen[bytes]

    def require_alive(self) -> None:
        """Raise CourseError, with an excerpt from the log, if the server process has exited."""
        if (code := self.process.poll()) is not None:
            raise CourseError(tr("Triton ended with code {code}: {tail}", code=code, tail=tail(self.log)))

    def ready(self) -> bool:
        """Return whether the server reports that it is ready for requests."""
        try:
            return httpx.get(f"http://{self.http}/v2/health/ready", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@contextlib.contextmanager
def running(
    folders: Path | Mapping[str, Path],
    http_port: int | None = None,
    grpc_port: int | None = None,
    metrics_port: int | None = None,
    address: str = LOOPBACK,
    timeout: float = 300,
    log: Path | None = None,
    threads: int | None = None,
    limits: Limits | None = None,
    drain: float = DRAIN,
) -> Iterator[Server]:
    """Serve exported folders inside the context.

    On exit, the server refuses new requests and answers those in progress. It also stops if this process is killed;
    then a temporary folder with links and the log remains until the next server starts.

    Args:
        folders: FasterTransformer folders by the names of their models; a single folder has the name repository.MODEL.
        http_port: port for HTTP; None selects a free port, here and for the other two.
        grpc_port: port for gRPC.
        metrics_port: port for Triton's metrics, which are on the loopback address in any case.
        address: address to listen on.
        timeout: time limit for startup [s].
        log: file for Triton's log; the default is a temporary file.
        threads: CPU threads of each instance; the default is its share of the cores.
        limits: instances of each model, and limits of its queue.
        drain: time that requests in progress have to finish when the server stops [s].
    """
    (binary, *backend_parts), limits = find(), limits or Limits()
    with temporary_folder("course-triton") as work:
        names = tuple(model.name for model in repository.write(folders, work / "models", limits=limits))
        backend = work / "backends" / "python"
        backend.mkdir(parents=True)
        for part in backend_parts:
            (backend / part.name).symlink_to(part)
        ports = {"http": (address, http_port), "grpc": (address, grpc_port), "metrics": (LOOPBACK, metrics_port)}
        places = {name: (host, _usable(host, port)) for name, (host, port) in ports.items()}
        shared = f"course_{os.getpid()}_{secrets.token_hex(4)}_"
        command = [str(binary), f"--model-repository={work / 'models'}", f"--backend-directory={backend.parent}"]
        for name, (host, port) in places.items():
            command += [f"--{name}-address={host}", f"--{name}-port={port}"]
        command += [f"--exit-timeout-secs={math.ceil(drain)}"]
        command += [f"--backend-config=python,shm-region-prefix-name={shared}"]
        command += [f"--backend-config=python,stub-timeout-seconds={int(timeout)}"]
        if threads is None and limits.instances > 1:
            threads = max(1, (os.cpu_count() or 1) // limits.instances)
        log_file = log or work / "triton.log"
        with open(log_file, "wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", lifeline.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(binary.parents[3] / "nvidia_pytriton.libs", threads),
                start_new_session=True,
            )
        http, grpc, metrics = (f"{host}:{port}" for host, port in places.values())
        server = Server(http, grpc, f"http://{metrics}/metrics", names, log_file, process)
        try:
            _wait(server, timeout)
            yield server
        finally:
            try:
                _stop(process, drain)
            finally:
                for leftover in SHARED.glob(f"{shared}*"):
                    leftover.unlink(missing_ok=True)


def serve(starting: contextlib.AbstractContextManager[Server]) -> None:
    """Serve until SIGINT or SIGTERM; `starting` is what `running` returns, not yet entered."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with starting as server:
            facts = {"http": server.http, "grpc": server.grpc, "metrics": server.metrics}
            facts["models"] = ", ".join(server.models)
            print(
                tr("serving {models}: http://{http}, grpc://{grpc}, metrics {metrics}; Ctrl-C stops it", **facts),
                flush=True,
            )
            try:
                while True:
                    server.require_alive()
                    time.sleep(0.2)
            except KeyboardInterrupt:
                print(tr("refusing new requests, answering those in progress; Ctrl-C again stops at once"), flush=True)
                raise
    except KeyboardInterrupt:
        print(tr("stopped"))
    finally:
        signal.signal(signal.SIGTERM, before)


def tail(log: Path) -> str:
    """Return the reason that the log gives for the failure of the server or the model, as one line."""
    content = log.read_text(errors="replace")
    if failure := MODEL_FAILED.search(content):
        return failure[1]
    lines = [LINE_START.sub("", line).strip() for line in content.splitlines() if COMPLAINT.match(line)]
    return " | ".join((lines or content.split("\n"))[-3:]).strip() or "the log is empty"


def _environment(libraries: Path, threads: int | None) -> dict[str, str]:
    """Return the server's environment; the stub's interpreter is that of the first python3 on PATH."""
    library_paths = [str(libraries), sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH")]
    variables = {"LD_LIBRARY_PATH": ":".join(filter(None, library_paths)), "PATH": ":".join(filter(None, paths))}
    return os.environ | variables | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def _usable(host: str, port: int | None) -> int:
    """Return the port, a free one if it is None. Raises CourseError if it cannot be used."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port or 0))
        except OSError as error:
            place = {"host": host, "port": port, "strerror": error.strerror}
            raise CourseError(
                tr(
                    "{host}:{port}: {strerror}; choose another with --http-port, --grpc-port and --metrics-port",
                    **place,
                )
            ) from error
        return int(probe.getsockname()[1])


def _wait(server: Server, timeout: float) -> None:
    started = time.monotonic()
    with progress(int(timeout), "s", "starting Triton") as bar:
        while not server.ready():
            server.require_alive()
            waited = time.monotonic() - started
            if waited > timeout:
                facts = {"timeout": timeout, "tail": tail(server.log)}
                raise CourseError(tr("Triton was not ready after {timeout:g} s (--timeout): {tail}", **facts))
            bar.n = int(waited)
            bar.refresh()
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes], drain: float) -> None:
    """Stop the server and all processes that it started, first with SIGTERM and, after `drain` seconds, SIGKILL."""
    try:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(drain + 5)
    # This also runs if another Ctrl-C interrupts the wait
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

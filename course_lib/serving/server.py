"""Local Triton server, which runs the executable from the nvidia-pytriton wheel.

`running(folder)` is a context manager that serves an exported folder and deletes all temporary files on exit.
`serve(folder)` runs the server in the foreground, for `course serve`. By default, the server listens only on the
loopback address. This module does not import pytriton.
"""

import contextlib
import importlib.util
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import FrameType

import httpx

from course_lib.errors import CourseError
from course_lib.files import require_other, temporary_folder
from course_lib.progress import progress
from course_lib.serving import ini, layout, lifeline, repository

LOOPBACK = "127.0.0.1"
IMAGE = "nvcr.io/nvidia/tritonserver:25.01-py3"  # Python 3.12
SHARED = Path("/dev/shm")  # memory shared by Triton and the model process
GRACE = 10  # seconds that running requests have to finish when the server is stopped
MODEL_FAILED = re.compile(r'Failed to create instance: (?:TritonModelException: )?(.+?)(?:\\n|"?$)', re.M)
# Start of an error line in the log: date, time and process
LINE_START = re.compile(r"^E\d{4} [\d:.]+ \d+ ")
COMPLAINT = re.compile(f"{LINE_START.pattern}|error:", re.M)
NEEDS = (
    "pip install --no-deps nvidia-pytriton==0.7.0 (Linux x86-64; Python 3.8 to 3.13), "
    f"or the container {IMAGE}: `course serve DIR --print`"
)


@dataclass(frozen=True)
class Installation:
    """Paths to the parts of the nvidia-pytriton wheel that are needed to run a server."""

    binary: Path
    backend: Path  # libtriton_python.so and its helpers
    stub: Path  # the executable that runs a Python model, for this interpreter's version
    libraries: Path


def find() -> Installation:
    """Return the paths to the Triton server that the nvidia-pytriton wheel has installed.

    Raises CourseError if nvidia-pytriton is not installed or does not support this interpreter.
    """
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise CourseError(f"Triton is not installed: {NEEDS}")
    package = Path(spec.submodule_search_locations[0])
    inside = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    binary, backend = inside / "bin" / "tritonserver", inside / "backends" / "python"
    stub = inside / "python_backend_stubs" / version / "triton_python_backend_stub"
    for part in (binary, backend / "libtriton_python.so", stub):
        if not part.is_file():
            lacks = f"no {part.name} for Python {version} on {sys.platform}"
            raise CourseError(f"the nvidia-pytriton wheel has {lacks}: {NEEDS}")
    return Installation(binary, backend, stub, package.parent / "nvidia_pytriton.libs")


@dataclass
class Server:
    """A running server."""

    http: str  # host:port
    grpc: str
    log: Path
    process: subprocess.Popen[bytes]

    def require_alive(self) -> None:
        """Raise CourseError, with an excerpt from the log, if the server process has exited."""
        if (code := self.process.poll()) is not None:
            raise CourseError(f"Triton ended with code {code}: {tail(self.log)}")

    def ready(self) -> bool:
        """Return whether the server reports that it is ready for requests."""
        try:
            return httpx.get(f"http://{self.http}/v2/health/ready", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@contextlib.contextmanager
def running(
    folder: Path,
    http_port: int | None = None,
    grpc_port: int | None = None,
    address: str = LOOPBACK,
    timeout: float = 300,
    log: Path | None = None,
    threads: int | None = None,
) -> Iterator[Server]:
    """Serve an exported folder inside the context.

    The server stops when the context exits. It also stops if this process or thread is killed. In that case, a
    temporary folder with links and the log remains until the next server starts.

    Args:
        folder: a FasterTransformer folder.
        http_port: port for HTTP; None selects a free port.
        grpc_port: port for gRPC; None selects a free port.
        address: address to listen on.
        timeout: time limit for startup [s].
        log: file for Triton's log; the default is a temporary file.
        threads: number of CPU threads for the model; the default is the number of cores.

    Raises:
        CourseError: if nvidia-pytriton is not installed, the folder cannot be served, a port is in use, or the server
            is not ready within `timeout`. If the server fails, the message includes its own error message.
    """
    installed = find()
    with temporary_folder("course-triton") as work:
        models = work / "models"
        repository.write(folder, models)
        _link(installed, work / "backends" / "python")
        ports = [_port(address, port) for port in (http_port, grpc_port)]
        shared = f"course_{os.getpid()}_{secrets.token_hex(4)}_"
        log_file = log or work / "triton.log"
        command = _command(installed.binary, models, work / "backends", address, ports, shared, timeout)
        with open(log_file, "wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", lifeline.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(installed, threads),
                start_new_session=True,
            )
        server = Server(f"{address}:{ports[0]}", f"{address}:{ports[1]}", log_file, process)
        try:
            _wait(server, timeout)
            yield server
        finally:
            try:
                _stop(process)
            finally:
                for leftover in SHARED.glob(f"{shared}*"):
                    leftover.unlink(missing_ok=True)


def serve(
    folder: Path,
    http_port: int = 8000,
    grpc_port: int = 8001,
    address: str = LOOPBACK,
    timeout: float = 300,
    log: Path | None = None,
    threads: int | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a folder until SIGINT or SIGTERM, with the same arguments as `running`; `say` prints the messages.

    Raises CourseError in the same cases as `running`, and if the server stops by itself.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with running(folder, http_port, grpc_port, address, timeout, log, threads) as server:
            urls = f"http://{server.http}, grpc://{server.grpc}"
            say(f"serving {folder} as {repository.MODEL!r}: {urls}; Ctrl-C stops it")
            while True:
                server.require_alive()
                time.sleep(0.2)
    except KeyboardInterrupt:
        say("stopped")
    finally:
        signal.signal(signal.SIGTERM, before)


def container_command(folder: Path, models: Path) -> str:
    """Return two shell commands, one per line, for serving a folder in NVIDIA's Triton container.

    The first command writes a Triton model repository to `models`; the second starts the container. Neither needs
    nvidia-pytriton.
    """
    weights_folder, ranks = layout.find(folder)
    # Check DIR now, as the first command would
    ini.read(weights_folder, ranks)
    require_other(folder, models)
    weights = f"/weights/{weights_folder.resolve().name}"
    write = ["course", "serve", str(folder), "-o", str(models), "--weights", weights]
    project = dict(line.split(", ", 1) for line in metadata.metadata("japanese-lm-course").get_all("Project-URL") or [])
    install = f"pip install torch transformers {project['Repository']}/archive/HEAD.tar.gz"
    inside = f"{install} && tritonserver --model-repository=/models"
    run = ["docker", "run", "--rm", "--shm-size=1g"]
    for source, target in ((weights_folder.resolve().parent, "/weights"), (models.resolve(), "/models")):
        run += ["-v", f"{source}:{target}:ro"]
    for port in (8000, 8001):
        run += ["-p", f"{LOOPBACK}:{port}:{port}"]
    return "\n".join([shlex.join(write), shlex.join([*run, IMAGE, "sh", "-c", inside])])


def tail(log: Path) -> str:
    """Return the reason that the log gives for the failure of the server or the model, as one line."""
    content = log.read_text(errors="replace")
    if failure := MODEL_FAILED.search(content):
        return failure[1]
    lines = [LINE_START.sub("", line).strip() for line in content.splitlines() if COMPLAINT.match(line)]
    return " | ".join((lines or content.split("\n"))[-3:]).strip() or "the log is empty"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _link(installed: Installation, target: Path) -> None:
    """Create the backend folder with links to the library, the helper module and the stub."""
    target.mkdir(parents=True)
    helpers = [installed.backend / name for name in ("libtriton_python.so", "triton_python_backend_utils.py")]
    for part in (*helpers, installed.stub):
        (target / part.name).symlink_to(part)


def _environment(installed: Installation, threads: int | None) -> dict[str, str]:
    """Return the server's environment variables.

    The stub's interpreter uses the Python environment of the first python3 on PATH.
    """
    libraries = [str(installed.libraries), sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH")]
    variables = {"LD_LIBRARY_PATH": ":".join(filter(None, libraries)), "PATH": ":".join(filter(None, paths))}
    return os.environ | variables | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def _command(
    binary: Path, models: Path, backends: Path, address: str, ports: list[int], shared: str, timeout: float
) -> list[str]:
    return [
        str(binary), f"--model-repository={models}", f"--backend-directory={backends}", "--allow-metrics=false",
        f"--http-address={address}", f"--http-port={ports[0]}", f"--grpc-address={address}", f"--grpc-port={ports[1]}",
        f"--exit-timeout-secs={GRACE}", f"--backend-config=python,shm-region-prefix-name={shared}",
        f"--backend-config=python,stub-timeout-seconds={int(timeout)}",
    ]  # fmt: skip


def _port(address: str, port: int | None) -> int:
    """Return `port`, or a free port if it is None. Raises CourseError if the port cannot be used."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port or 0))
        except OSError as error:
            hint = "choose another with --http-port and --grpc-port"
            raise CourseError(f"{address}:{port}: {error.strerror}; {hint}") from error
        return int(probe.getsockname()[1])


def _wait(server: Server, timeout: float) -> None:
    started = time.monotonic()
    with progress(int(timeout), "s", "starting Triton") as bar:
        while not server.ready():
            server.require_alive()
            waited = time.monotonic() - started
            if waited > timeout:
                raise CourseError(f"Triton was not ready after {timeout:g} s (--timeout): {tail(server.log)}")
            bar.n = int(waited)
            bar.refresh()
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server and all processes that it started, first with SIGTERM and then with SIGKILL."""
    try:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE + 5)
    # This also runs if another Ctrl-C interrupts the wait
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

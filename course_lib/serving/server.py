"""A real Triton server on this machine: the binary inside the nvidia-pytriton wheel, on loopback addresses, with nothing left behind.

`running(folder)` serves while a block runs; `serve(folder)` is the foreground of `course serve`. pytriton itself is not imported.
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
SHARED = Path("/dev/shm")  # where Triton and the model's process meet
GRACE = 10  # seconds for requests under way when the server is stopped
MODEL_FAILED = re.compile(r'Failed to create instance: (?:TritonModelException: )?(.+?)(?:\\n|"?$)', re.M)
LINE_START = re.compile(r"^E\d{4} [\d:.]+ \d+ ")  # of an error in the log: date, time, process
COMPLAINT = re.compile(f"{LINE_START.pattern}|error:", re.M)
NEEDS = f"pip install --no-deps nvidia-pytriton==0.7.0 (Linux x86-64; Python 3.8 to 3.13), or the container {IMAGE}: `course serve DIR --print`"


@dataclass(frozen=True)
class Installation:
    """The parts of the wheel."""

    binary: Path
    backend: Path  # libtriton_python.so and its helpers
    stub: Path  # the program that runs a Python model, for this interpreter's version
    libraries: Path


def find() -> Installation:
    """The server of the nvidia-pytriton wheel. Raises CourseError if there is none for this interpreter."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise CourseError(f"Triton is not installed: {NEEDS}")
    package = Path(spec.submodule_search_locations[0])
    inside = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = inside / "python_backend_stubs" / version / "triton_python_backend_stub"
    found = Installation(
        inside / "bin" / "tritonserver", inside / "backends" / "python", stub, package.parent / "nvidia_pytriton.libs"
    )
    for part in (found.binary, found.backend / "libtriton_python.so", found.stub):
        if not part.is_file():
            raise CourseError(
                f"the nvidia-pytriton wheel has no {part.name} for Python {version} on {sys.platform}: {NEEDS}"
            )
    return found


@dataclass
class Server:
    """A server that runs."""

    http: str  # host:port
    grpc: str
    log: Path
    process: subprocess.Popen[bytes]

    def require_alive(self) -> None:
        """Raises CourseError with what the server said last if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise CourseError(f"Triton ended with code {code}: {tail(self.log)}")

    def ready(self) -> bool:
        """Whether the model answers."""
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
    """Serves an exported folder while the block runs; ports that are not given are free ones. `threads` are the model's (default: cores).

    The server ends with the block, and with this process or thread if that is killed (all that stays then is a folder of links and the log,
    where temporary files are, until the next server starts). Raises CourseError if the wheel is not there, the
    folder cannot be served, a port is taken, or the server is not ready within `timeout` seconds; its words are in the error.
    """
    installed = find()
    with temporary_folder("course-triton") as work:
        models = work / "models"
        repository.write(folder, models)
        _link(installed, work / "backends" / "python")
        ports = [_port(address, port) for port in (http_port, grpc_port)]
        shared = f"course_{os.getpid()}_{secrets.token_hex(4)}_"
        words = log or work / "triton.log"
        command = _command(installed.binary, models, work / "backends", address, ports, shared, timeout)
        with open(words, "wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", lifeline.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(installed, threads),
                start_new_session=True,
            )
        server = Server(f"{address}:{ports[0]}", f"{address}:{ports[1]}", words, process)
        try:
            _wait(server, timeout)
            yield server
        finally:
            try:
                _stop(process)
            finally:
                for left in SHARED.glob(f"{shared}*"):
                    left.unlink(missing_ok=True)


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
    """Serves until SIGINT or SIGTERM. Raises CourseError as `running` does, and if the server ends by itself."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with running(folder, http_port, grpc_port, address, timeout, log, threads) as server:
            say(
                f"serving {folder} as {repository.MODEL!r}: http://{server.http}, grpc://{server.grpc}; Ctrl-C stops it"
            )
            while True:
                server.require_alive()
                time.sleep(0.2)
    except KeyboardInterrupt:
        say("stopped")
    finally:
        signal.signal(signal.SIGTERM, before)


def container_command(folder: Path, models: Path) -> str:
    """Two commands, for those without the wheel: one writes the repository, one serves it from NVIDIA's container."""
    place, ranks = layout.find(folder)
    # DIR is checked as the printed command will check it
    ini.read(place, ranks)
    require_other(folder, models)
    weights = f"/weights/{place.resolve().name}"
    write = ["course", "serve", str(folder), "-o", str(models), "--weights", weights]
    project = dict(line.split(", ", 1) for line in metadata.metadata("japanese-lm-course").get_all("Project-URL") or [])
    inside = f"pip install torch transformers {project['Repository']}/archive/HEAD.tar.gz && tritonserver --model-repository=/models"
    run = ["docker", "run", "--rm", "--shm-size=1g"]
    for source, target in ((place.resolve().parent, "/weights"), (models.resolve(), "/models")):
        run += ["-v", f"{source}:{target}:ro"]
    for port in (8000, 8001):
        run += ["-p", f"{LOOPBACK}:{port}:{port}"]
    return "\n".join([shlex.join(write), shlex.join([*run, IMAGE, "sh", "-c", inside])])


def tail(log: Path) -> str:
    """Why the server or the model gave up, in one line."""
    said = log.read_text(errors="replace")
    if found := MODEL_FAILED.search(said):
        return found[1]
    lines = [LINE_START.sub("", line).strip() for line in said.splitlines() if COMPLAINT.match(line)]
    return " | ".join((lines or said.split("\n"))[-3:]).strip() or "it said nothing"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _link(installed: Installation, target: Path) -> None:
    """The backend's folder: its library, its helper and the stub side by side."""
    target.mkdir(parents=True)
    for part in (
        installed.backend / "libtriton_python.so",
        installed.backend / "triton_python_backend_utils.py",
        installed.stub,
    ):
        (target / part.name).symlink_to(part)


def _environment(installed: Installation, threads: int | None) -> dict[str, str]:
    """The interpreter inside the stub takes the environment whose python3 comes first on PATH."""
    libraries = [str(installed.libraries), sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH")]
    found = {"LD_LIBRARY_PATH": ":".join(filter(None, libraries)), "PATH": ":".join(filter(None, paths))}
    return os.environ | found | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


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
    """The port, or a free one. Raises CourseError if it cannot be had."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port or 0))
        except OSError as error:
            raise CourseError(
                f"{address}:{port}: {error.strerror}; choose another with --http-port and --grpc-port"
            ) from error
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
    """Ends the server and all it started: asked first, then killed."""
    try:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE + 5)
    finally:  # also when another Ctrl-C cuts the wait short
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

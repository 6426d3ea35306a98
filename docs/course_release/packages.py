"""Wheel and sdist: built from the last commit, compared with it, uploaded to an index on this machine and installed."""

import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import urllib.request
import venv
from contextlib import suppress
from pathlib import Path
from zipfile import ZipFile

from course_lib import files
from course_lib.checkpoints import aozora
from course_lib.errors import CourseError
from course_lib.paths import REPOSITORY

NAME = "japanese-lm-course"
# In no package, but an asset of the release.
WEIGHTS = f"data/{aozora.NAME}/{aozora.WEIGHTS}"


def run(*command: str | Path, folder: Path, variables: dict[str, str] | None = None) -> str:
    """Run a command and return its output; raise CourseError if it fails, after printing that output.

    Of the environment, what would give the command another course, index or account is left out.
    """
    hidden = ("PYTHONPATH", "PYTHONHOME", "COURSE_", "PIP_", "TWINE_", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env=clean | (variables or {}), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise CourseError(f"{' '.join(words)[:200]}: exit code {done.returncode}; its output is above")
    return done.stdout


def require_clean_tree() -> None:
    """Raise CourseError if a file of the checkout is not that of the last commit."""
    changed = run("git", "status", "--porcelain", folder=REPOSITORY).splitlines()
    if changed:
        raise CourseError(f"{len(changed)} changes are not committed, the first: {changed[0].strip()}; commit them")


def build(scratch: Path, target: Path) -> list[Path]:
    """Write sdist and wheel into `target`; leave in `scratch` the commit's files (source) and the tools (tools).

    The wheel is built from the sdist. The date in both is that of the commit, so the same commit gives the same bytes.
    Raises CourseError if twine finds fault with them, or if their files are not those of the commit.
    """
    source, tools = scratch / "source", scratch / "tools"
    run("git", "archive", "--output", scratch / "source.tar", "HEAD", folder=REPOSITORY)
    with tarfile.open(scratch / "source.tar") as archive:
        archive.extractall(source, filter="data")
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf8"))["project"]
    venv.create(tools, with_pip=True)
    # From the index that pip is set up with; what is rehearsed later sees only the local one.
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    pins = project["optional-dependencies"]["release"]
    run(tools / "bin/pip", "install", "--quiet", *pins, folder=scratch, variables=pip)
    epoch = run("git", "log", "-1", "--format=%ct", folder=REPOSITORY).strip()
    run(tools / "bin/python", "-m", "build", "--no-isolation", "--outdir", target, source,
        folder=scratch, variables={"SOURCE_DATE_EPOCH": epoch})  # fmt: skip
    built = sorted(target.iterdir())
    run(tools / "bin/twine", "check", "--strict", *built, folder=scratch)
    compare(source, built)
    return built


def compare(source: Path, built: list[Path]) -> None:
    """Raise CourseError if sdist or wheel lack a file of the commit, have another one, or change its content.

    The weights of the course's model are in neither.
    """
    committed = {path.relative_to(source).as_posix(): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    committed.pop(WEIGHTS, None)
    library = {name: content for name, content in committed.items() if name.startswith("course_lib/")}
    data = {f"course_lib/{name}": content for name, content in committed.items() if name.startswith("data/")}
    for package in built:
        if package.suffix == ".whl":
            with ZipFile(package) as wheel:
                packed = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
            wanted = library | data
        else:
            with tarfile.open(package) as sdist:
                members = [(each.name.partition("/")[2], sdist.extractfile(each)) for each in sdist if each.isfile()]
                packed = {name: file.read() for name, file in members if file and name != "PKG-INFO"}
            wanted = committed
        names = packed.keys() | wanted.keys()
        if wrong := sorted(name for name in names if packed.get(name) != wanted.get(name)):
            raise CourseError(f"{package.name}: {len(wrong)} files are not those of the commit, the first: {wrong[0]}")


def rehearse(scratch: Path, built: list[Path], version: str) -> Path:
    """Upload the packages to an index on this machine, install the course from it, and return the `course` command.

    The new environment has the course alone and takes its dependencies from the environment of this process. pip
    accepts only the wheel that was built: the SHA-256 digest of what the index gives must be the same.
    """
    tools, index, course = scratch / "tools/bin", scratch / "index", scratch / "environment"
    index.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/"
    # Nobody needs a password, and a package that the folder lacks is not looked for elsewhere.
    options = ["-i", "127.0.0.1", "-p", str(port), "-a", ".", "-P", ".", "--disable-fallback"]
    server = subprocess.Popen(
        [tools / "pypi-server", "run", *options, index], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(address, server)
        run(tools / "twine", "upload", "--non-interactive", "--disable-progress-bar", "--config-file", os.devnull,
            "--repository-url", address, "-u", "none", "-p", "none", *built, folder=scratch)  # fmt: skip
        wheel = next(path for path in built if path.suffix == ".whl")
        wanted = scratch / "wanted.txt"
        wanted.write_text(f"{NAME}=={version} --hash=sha256:{files.sha256(wheel)}\n")
        venv.create(course, with_pip=False)
        run(tools / "pip", "--python", course / "bin/python", "install", "--no-cache-dir", "--no-deps",
            "--require-hashes", "--index-url", f"{address}simple/", "-r", wanted,
            folder=scratch, variables={"PIP_CONFIG_FILE": os.devnull})  # fmt: skip
    finally:
        server.terminate()
        server.wait()
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(course)}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = course / "bin/course"
    said = run(command, "--version", folder=scratch).strip()
    if said != f"course {version}":
        raise CourseError(f"course --version: says {said}; expected course {version}")
    run(command, "--help", folder=scratch)
    run(command, "doctor", folder=scratch)
    run(command, "world", "write", "--documents", "100", "-o", "world.jsonl", folder=scratch)
    return command


def _wait(address: str, server: "subprocess.Popen[bytes]") -> None:
    """Wait until a server answers, 30 seconds at most."""
    for _ in range(300):
        with suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise CourseError(f"{address}: the index did not start")

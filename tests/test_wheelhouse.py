"""`make wheelhouse` and the installation from it, with the real Makefile and pip, on packages of a few lines; no index. The pins."""

import os
import subprocess
import tomllib
import venv
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pip
import pytest
from course_lib.paths import REPOSITORY
from packaging.specifiers import SpecifierSet

from tests.waiting import LIMIT

# A build backend of the standard library that needs nothing else installed; it also builds an editable package.
BACKEND = """
from pathlib import Path
from zipfile import ZipFile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = "{name}-1.0.dist-info/"
    with ZipFile(Path(folder) / "{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("{name}.py", "VALUE = '{name} 1.0'\\n")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return "{name}-1.0-py3-none-any.whl"

build_editable = build_wheel
"""


def source(folder: Path, name: str, requires: str = "") -> Path:
    """Writes the source of a package."""
    folder.mkdir()
    (folder / "backend.py").write_text(BACKEND.format(name=name))
    system = f"requires = [{requires}]\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    (folder / "pyproject.toml").write_text(f"[build-system]\n{system}[project]\nname = '{name}'\nversion = '1.0'\n")
    (folder / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Makefile beside the source of a package called `course`, which is built with `tool`, and an index of packages.

    `torch` and `tool` lie in the index as wheels, `plain` as a source archive.
    """
    folder = tmp_path_factory.mktemp("wheelhouse")
    (folder / "index").mkdir()
    for name in ("torch", "tool", "plain"):
        package = source(folder / f"{name}-1.0", name)
        if name == "plain":
            subprocess.run(["tar", "-czf", "index/plain-1.0.tar.gz", "plain-1.0"], cwd=folder, check=True)
        else:
            build = "import sys; sys.path.insert(0, '.'); import backend; backend.build_wheel(sys.argv[1])"
            subprocess.run(["python3", "-c", build, folder / "index"], cwd=package, check=True)
    checkout = source(folder / "checkout", "course", "'tool'")
    # An environment with this one's pip, in a tenth of the time that `python -m venv` needs to install its own.
    venv.create(checkout / ".venv", symlinks=True, with_pip=False)
    (next(checkout.glob(".venv/lib/python*/site-packages")) / "pip").symlink_to(Path(pip.__file__).parent)
    (checkout / "Makefile").write_bytes((REPOSITORY / "Makefile").read_bytes())
    (checkout / "requirements.txt").write_text("torch==1.0\nplain==1.0\n")
    return checkout


def make(checkout: Path, target: str, index: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs make with an index of packages, or with one that nobody serves."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "MAKE", "PYTHONPATH"))}
    # Port 9 of the loopback address: refused at once.
    found = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)} if index else {"PIP_INDEX_URL": "http://127.0.0.1:9/"}
    variables = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "PIP_CACHE_DIR": str(checkout.parent / "cache")}
    command = ["make", "--no-print-directory", target, "BUILD=tool", "TRITON=no-such-server==1.0"]
    where: Any = {"cwd": checkout, "env": keep | variables | found, "timeout": LIMIT, "check": False}
    return subprocess.run(command, capture_output=True, text=True, **where)


def test_a_wheelhouse_is_made_and_installs_without_network(checkout: Path) -> None:
    wheels = checkout / "wheelhouse"
    done = make(checkout, "wheelhouse", checkout.parent / "index")
    assert done.returncode == 0, done.stderr
    assert "no Triton server for this machine" in done.stdout and "wheelhouse: 3 wheels, " in done.stdout
    names = {"torch-1.0-py3-none-any.whl", "tool-1.0-py3-none-any.whl", "plain-1.0-py3-none-any.whl", "for.txt"}
    assert {path.name for path in wheels.iterdir()} == names

    # An interrupted download goes on: what is there, the wheel that was built included, is not fetched again.
    (wheels / "for.txt").unlink()
    (wheels / "tool-1.0-py3-none-any.whl").unlink()
    (checkout.parent / "index/plain-1.0.tar.gz").unlink()
    (checkout.parent / "index/torch-1.0-py3-none-any.whl").unlink()
    assert make(checkout, "wheelhouse", checkout.parent / "index").returncode == 0
    assert {path.name for path in wheels.iterdir()} == names

    done = make(checkout, ".venv/.installed")
    assert done.returncode == 0, done.stderr
    show = "import course, plain, torch; print(course.VALUE, plain.VALUE, torch.VALUE)"
    said = subprocess.run([checkout / ".venv/bin/python", "-c", show], capture_output=True, text=True, check=True)
    assert said.stdout == "course 1.0 plain 1.0 torch 1.0\n"

    # pins that the wheelhouse was not made for
    (checkout / "requirements.txt").write_text("torch==1.0\nplain==1.1\n")
    done = make(checkout, ".venv/.installed")
    assert done.returncode == 2
    assert "wheelhouse/ is for another machine, Python or requirements.txt; run make wheelhouse again" in done.stdout

    # Without a wheelhouse, the network is used: here, one that nobody serves.
    (wheels / "for.txt").unlink()
    done = make(checkout, ".venv/.installed")
    assert done.returncode == 2 and "plain==1.1" in done.stderr


def test_the_oldest_python_of_the_course_is_old_enough_for_no_pin() -> None:
    """Debian 12 has 3.11.2, and one pin asked for 3.11.5."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf8"))["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    wanted = {found.name: SpecifierSet(found.metadata["Requires-Python"] or "") for found in distributions()}
    assert [name for name, versions in wanted.items() if oldest not in versions] == []

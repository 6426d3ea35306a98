"""A stand-in for a Colab runtime: a virtual environment with Colab's pins and a `google.colab` module.

Colab itself runs the notebooks in the system's Python of a container with 700 packages. Here are the packages that the
course's set-up cell can touch, in Colab's versions, on the same Python where one is at hand.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import nbformat
from course_lib.paths import REPOSITORY
from packaging.utils import canonicalize_name

from course_authors.notebooks import SETUP_TAG, address

FREEZES = {"3.12": "2026-07-14", "3.13": "2026-08-19"}
# What the set-up cell must leave as it is.
KEPT = (
    "torch", "numpy", "protobuf", "ipython", "ipywidgets", "ipykernel", "typer", "peft", "transformers",
    "tokenizers", "huggingface-hub", "grpcio", "pydantic", "psutil", "matplotlib",
)  # fmt: skip


def constraints(python: str) -> Path:
    """Colab's freeze for a Python version such as 3.13; for a Python that Colab does not have, the newest."""
    return Path(__file__).with_name(f"constraints-{FREEZES.get(python, max(FREEZES.values()))}.txt")


def pins(file: Path) -> dict[str, str]:
    """The versions of a constraints file by package."""
    lines = file.read_text(encoding="utf8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


class Runtime:
    """A Python and its packages. Every subprocess that fails raises AssertionError with its output."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self.site = Path(self.run("import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    @classmethod
    def create(cls, folder: Path, python: str, *options: str, behind: Path | None = None) -> "Runtime":
        """A virtual environment in a folder, with a stand-in for `google.colab`, which shares its namespace with protobuf.

        `behind` is a folder of packages to import where the environment has none of that name.
        """
        _run([python, "-m", "venv", *options, str(folder)])
        made = cls(folder / "bin" / "python")
        package = made.site / "google" / "colab"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text('"""Stand-in."""\n', encoding="utf8")
        if behind:
            (made.site / "behind.pth").write_text(str(behind), encoding="utf8")
        return made

    def run(self, code: str) -> str:
        return _run([str(self.python), "-c", code])

    def pip(self, *arguments: str) -> str:
        return _run([str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments])

    def add_name_only(self, name: str, version: str) -> None:
        """Makes pip believe that a package is installed: for torch, where no CPU build for this Python is at hand."""
        metadata = self.site / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (metadata / "RECORD").write_text("")
        (metadata / "INSTALLER").write_text("pip")

    def versions(self) -> dict[str, str]:
        """The installed versions by package, with canonical names."""
        code = (
            "import json, importlib.metadata as m; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
        )
        # What stands first on the path is what is imported.
        return {canonicalize_name(name): version for name, version in reversed(json.loads(self.run(code)))}

    def conflicts(self) -> list[str]:
        """The lines of `pip check`; none if all demands are met."""
        done = subprocess.run([self.python, "-m", "pip", "check"], capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode else []

    def execute(self, notebook: Path, workspace: Path) -> float:
        """Runs a notebook in place in its folder by this environment's nbclient and kernel. Returns the seconds."""
        beginnings = ("PYTHONPATH", "PYTEST_", "COURSE_", "VIRTUAL_ENV", "JUPYTER_", "IPYTHON")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(beginnings)}
        # A new runtime has no wheels in pip's cache.
        environment |= {"PIP_NO_CACHE_DIR": "1"}
        environment |= {"COURSE_WORKSPACE": str(workspace), "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        start = "from nbclient.cli import main; main()"
        command = [str(self.python), "-c", start, "--inplace", "--timeout=1800", notebook.name]
        started = time.monotonic()
        _run(command, cwd=notebook.parent, env=environment)
        return time.monotonic() - started


def wheel(folder: Path, python: Path) -> Path:
    """Builds the wheel of this repository in a folder."""
    command = [str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(REPOSITORY)]
    _run([*command, "--disable-pip-version-check"])
    return next(folder.glob("*.whl"))


def setup_only(notebook: Path, wheel: Path, target: Path, *more: str) -> None:
    """Writes another notebook's set-up cell, with a wheel in place of the repository's address, and more cells."""
    cells = nbformat.read(notebook, as_version=4).cells
    [cell] = [cell for cell in cells if SETUP_TAG in cell.metadata.get("tags", [])]
    source = f"git+{address()}"
    assert cell.source.count(source) == 1, cell.source
    setup = nbformat.v4.new_code_cell(cell.source.replace(source, wheel.as_uri()))
    others = [nbformat.v4.new_code_cell(source) for source in ("print(course_lib.__file__)", *more)]
    nbformat.write(nbformat.v4.new_notebook(cells=[setup, *others]), target)


def cut(notebook: Path, target: Path, before: str) -> int:
    """Copies a notebook up to the first code cell with a text in its source. Returns the number of its code cells."""
    content = nbformat.read(notebook, as_version=4)
    sources = [cell.source if cell.cell_type == "code" else "" for cell in content.cells]
    content.cells = content.cells[: next(number for number, source in enumerate(sources) if before in source)]
    nbformat.write(content, target)
    return sum(cell.cell_type == "code" for cell in content.cells)


def text(notebook: Path) -> str:
    """What the cells of an executed notebook printed."""
    cells = nbformat.read(notebook, as_version=4).cells
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))


def _run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return str(done.stdout)

"""Execution of notebooks, and updates to their common cells (badge and setup) from pyproject.toml.

Outputs are not compared here; tests/notebooks compares them with nbval.
"""

import atexit
import os
import re
import tomllib
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course_lib.errors import CourseError
from course_lib.files import atomic_write
from course_lib.language import words
from course_lib.notebooks.bar import WIDGET
from course_lib.paths import REPOSITORY
from course_lib.progress import progress

# tags of cells with a special role
SETUP_TAG = "setup"
BADGE_TAG = "badge"
README_TAG = "readme"
SETUP = """\
try:
    import course_lib
except ImportError:  # on Colab: 1–2 minutes (builds jumandic, deepspeed); its torch and numpy stay
    source = "git+{address}"
    %pip install -q "japanese-lm-course[notebook,train,serve] @ {{source}}"
    import course_lib
"""


def execute(source: Path, target: Path, language: str | None = None) -> int:
    """Run every cell of a notebook in the notebook's folder, and write the notebook with its outputs.

    With `language`, the kernel shows its words in this language; otherwise, in the one that COURSE_LANG names.
    Returns the number of code cells. If a cell fails, raises CourseError naming the cell and the exception, and does
    not write `target`.
    """
    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    client = NotebookClient(
        notebook,
        # At more verbose levels, the kernel warns at every start that the loopback connection is not encrypted.
        extra_arguments=["--log-level=ERROR"],
        # seconds per cell
        timeout=1800,
        kernel_name="python3",
        resources={"metadata": {"path": str(source.parent)}},
    )
    executed = []
    with progress(len(cells), "cell", source.stem) as bar:

        def count(cell: nbformat.NotebookNode, **_: object) -> None:
            executed.append(cell)
            bar.update()

        client.on_cell_executed = count
        try:
            _run(client, os.environ | ({words.VARIABLE: language} if language else {}))
        except CellExecutionError as error:
            failed = [any(output.output_type == "error" for output in cell.outputs) for cell in cells]
            number = failed.index(True) + 1 if True in failed else 0
            raise CourseError(f"{source.name}: code cell {number} failed: {error.ename}: {error.evalue}") from error
        except (DeadKernelError, CellTimeoutError) as error:
            problem = "the kernel died (out of memory?) or hung"
            raise CourseError(f"{source.name}: code cell {len(executed) + 1}: {problem}") from error
    tidy(notebook)
    nbformat.write(notebook, target)  # type: ignore[no-untyped-call]
    return len(cells)


def _run(client: NotebookClient, environment: dict[str, str]) -> None:
    """Execute a notebook. After Ctrl-C or SIGTERM, end its kernel at once.

    In the main thread, nbclient would replace the handlers of these signals and then fail with an AssertionError.
    """
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.execute, env=environment)
        try:
            running.result()
        except (KeyboardInterrupt, SystemExit):
            process = client.km and getattr(client.km.provisioner, "process", None)
            if process:
                process.kill()
            # It fails if the kernel is gone.
            atexit.unregister(client._cleanup_kernel)
            raise


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Remove metadata that changes between runs and is of no use to readers.

    This includes timings, the Python version, and the state and output of widgets, such as progress bars.
    """
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_widget(output)]


def _is_widget(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is a widget, or the empty output that a closed progress bar leaves."""
    return "data" in output and (not output.data or WIDGET in output.data)


def address() -> str:
    """Return the repository URL, which is stored only in pyproject.toml (`Repository` under [project.urls])."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf8"))["project"]
    return str(project["urls"]["Repository"]).rstrip("/")


def badge(name: str) -> str:
    """Return the Colab badge for a notebook as Markdown."""
    slug = re.sub(r"^https://github\.com/", "", address())
    link = f"https://colab.research.google.com/github/{slug}/blob/main/notebooks/{name}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})"


def refresh(path: Path) -> bool:
    """Update a notebook's badge and setup cell from pyproject.toml and tidy the notebook. Return whether it changed."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    wanted = {BADGE_TAG: badge(path.name), SETUP_TAG: SETUP.format(address=address()).strip()}
    before = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    tidy(notebook)
    for cell in notebook.cells:
        for tag, text in wanted.items():
            if tag in cell.metadata.get("tags", []):
                cell.source = text
    changed = bool(nbformat.writes(notebook) != before)  # type: ignore[no-untyped-call]
    if changed:
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    return changed


def export_images(path: Path) -> None:
    """Write the figure from the executed cell tagged `readme`, if there is one, for the README.

    The path is images/<notebook>.png in the folder of the notebook.
    """
    for cell in nbformat.read(path, as_version=4).cells:  # type: ignore[no-untyped-call]
        if README_TAG not in cell.metadata.get("tags", []):
            continue
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                with atomic_write(path.parent / "images" / f"{path.stem}.png") as file:
                    file.write(b64decode(output.data["image/png"]))

"""Execution of notebooks. Outputs are not compared here; tests/notebooks compares them with nbval."""

import atexit
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from course_lib.errors import CourseError
from course_lib.notebooks.progress import progress
from course_lib.notebooks.progress_widget import WIDGET_MIME

# Longest time that a cell may take [s].
TIMEOUT = 1800


def execute(source: Path, target: Path) -> int:
    """Run every cell of a notebook in its folder, write it with its outputs, and return its number of code cells.

    If a cell fails, raises CourseError naming the cell and the exception, and does not write `target`.
    """
    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    cells: int = sum(cell.cell_type == "code" for cell in notebook.cells)
    # At more verbose levels, the kernel warns at every start that the loopback connection is not encrypted.
    options: dict[str, Any] = {"extra_arguments": ["--log-level=ERROR"], "timeout": TIMEOUT, "kernel_name": "python3"}
    client = NotebookClient(notebook, resources={"metadata": {"path": str(source.parent)}}, **options)
    executed: list[object] = []
    with progress(cells, "cell", source.stem) as bar:

        def count(cell: object, **_: object) -> None:
            executed.append(cell)
            bar.update()

        client.on_cell_executed = count
        cell_name = f"{source.name}: code cell"
        try:
            _run(client)
        except CellExecutionError as error:
            raise CourseError(f"{cell_name} {len(executed)} failed: {error.ename}: {error.evalue}") from error
        except (DeadKernelError, CellTimeoutError) as error:
            raise CourseError(f"{cell_name} {len(executed) + 1}: the kernel died (out of memory?) or hung") from error
    tidy(notebook)
    nbformat.write(notebook, target)  # type: ignore[no-untyped-call]
    return cells


def _run(client: NotebookClient) -> None:
    """Execute a notebook. After Ctrl-C or SIGTERM, end its kernel at once.

    In the main thread, nbclient would replace the handlers of these signals and then fail with an AssertionError.
    """
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.execute)
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
    """Remove what changes between runs: timings, the Python version, and widgets, such as progress bars."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_widget(output)]


def _is_widget(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is a widget, or what a closed progress bar leaves: an output without data."""
    return "data" in output and (not output["data"] or WIDGET_MIME in output["data"])

"""The progress bar in a notebook's kernel: what stays in the notebook, and what nbval sees of it."""

from typing import Any

import nbformat
import pytest
from course_lib.notebooks.execution import tidy
from course_lib.notebooks.progress_widget import WIDGET_MIME
from nbclient import NotebookClient

BAR = """\
from course_lib.notebooks.progress import progress
with progress(4, "step", "working") as bar:
    bar.update({steps})
    {then}
print("done")
"""


@pytest.fixture(scope="module")
def executed() -> Any:
    """Three cells: a finished bar, a bar that ends early without an error, and a bar that is still open."""
    sources = [
        BAR.format(steps=4, then="pass"),
        BAR.format(steps=1, then="pass"),
        "open_bar = progress(4, 'step', 'open')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, kernel_name="python3").execute()
    return notebook


def test_closed_bar_leaves_an_empty_output(executed: Any) -> None:
    for cell in executed.cells[:2]:
        bar, text = cell.outputs
        assert bar.output_type == "display_data" and bar.data == {} and text.text == "done\n"


def test_open_bar_has_no_text_form(executed: Any) -> None:
    """nbval skips the type of widgets, so a bar changes nothing that it compares."""
    assert list(executed.cells[2].outputs[0].data) == [WIDGET_MIME]


def test_tidy_removes_bars(executed: Any) -> None:
    tidy(executed)
    assert [len(cell.outputs) for cell in executed.cells] == [1, 1, 0]

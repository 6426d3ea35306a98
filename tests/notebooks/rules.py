"""The rules every notebook keeps (DESIGN: Notebooks). `problems` returns what breaks them, as sentences."""

import json
import re
import statistics
from collections.abc import Iterator
from itertools import groupby

import nbformat

from course_authors.notebooks import BADGE_TAG, SETUP, SETUP_TAG, address, badge

MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|work|Users|mnt|opt|var|workspace)/|[A-Z]:\\\\")
# the cell tag by which nbval runs a cell and does not compare its output
IGNORED_TAG = "nbval-ignore-output"


def problems(notebook: nbformat.NotebookNode, name: str) -> list[str]:
    # Functions that the learner writes, each with the course's version; others belong into the library.
    functions = 30 if "by_hand" in name else 8
    return [*_cells(notebook, functions), *_outputs(notebook), *_shared_cells(notebook, name)]


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _cells(notebook: nbformat.NotebookNode, functions: int) -> Iterator[str]:
    code = code_cells(notebook)
    lengths = sorted(len([line for line in cell.source.split("\n") if line.strip()]) for cell in code)
    if statistics.median(lengths) > 6:
        yield f"median length of code cells is {statistics.median(lengths)} lines, allowed: 6"
    if lengths[-1] > 25:
        yield f"longest code cell has {lengths[-1]} lines, allowed: 25"
    if sum(length >= 15 for length in lengths) > len(lengths) / 10:
        yield "more than one code cell in ten has 15 lines or more"
    if widest := max((line for cell in code for line in cell.source.split("\n")), key=len)[100:]:
        yield f"has a code line wider than 100 characters, by {widest!r}"
    if sum(cell.cell_type == "markdown" for cell in notebook.cells) < 1.4 * len(code):
        yield "has fewer than 1.4 markdown cells for a code cell"
    for kind, run in groupby(cell.cell_type for cell in notebook.cells):
        if kind == "code" and len(list(run)) > 2:
            yield "has more than two code cells in a row"
    source = "\n".join(cell.source for cell in code)
    if len(re.findall(r"^\s*def ", source, re.M)) > functions:
        yield f"defines more than {functions} functions"
    if re.search(r"^\s*!|^%%(?:bash|sh|script)|^\s*%(?:sx|system)\b|get_ipython\(\)\.system", source, re.M):
        yield "has a shell escape, whose failure would pass unnoticed"
    if sum(IGNORED_TAG in cell.metadata.get("tags", []) for cell in code) > len(code) / 5:
        yield "more than one code cell in five is not compared"


def _outputs(notebook: nbformat.NotebookNode) -> Iterator[str]:
    code = code_cells(notebook)
    for number, cell in enumerate(code, 1):
        if any(output.output_type == "error" for output in cell.outputs):
            yield f"code cell {number} ends in an error"
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        yield "was not executed from top to bottom"
    outputs = [output for cell in code for output in cell.outputs]
    # What is printed, and values without their images.
    texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs]
    if (booleans := sum(len(re.findall(r"\b(?:True|False)\b", text)) for text in texts)) > 3:
        yield f"prints True or False {booleans} times, allowed: 3; print the numbers"
    if any("\ufffd" in text for text in texts):
        yield "prints a replacement character: a text with broken bytes"
    stored = json.dumps(notebook, ensure_ascii=False)
    if "widgets" in notebook.metadata or "widget-view" in stored or "widget-state" in stored:
        yield "holds widget state"
    without_images = re.sub(r'"image/png": "[^"]*"', "", stored)
    if path := MACHINE_PATH.search(without_images):
        yield f"holds a machine path: …{without_images[path.start() : path.end() + 30]}…"


def _shared_cells(notebook: nbformat.NotebookNode, name: str) -> Iterator[str]:
    wanted = {BADGE_TAG: badge(name), SETUP_TAG: SETUP.format(address=address()).strip()}
    for tag, text in wanted.items():
        found = [cell.source for cell in notebook.cells if tag in cell.metadata.get("tags", [])]
        if found != [text]:
            yield f"its {tag} cell is not in step; run `course notebooks`"
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    parts = ("| minutes |", "After this chapter you can", "(core)", "(optional)", "**Predict", "## Exercises")
    for part in (*parts, "## Summary", "**Sources.**", "**Next:**"):
        if part not in text:
            yield f"lacks {part!r}"
    first = next((i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"), 0)
    if not any("After this chapter you can" in cell.source for cell in notebook.cells[:first]):
        yield "states its goals after the first code cell"
    if not any("road(" in cell.source for cell in code_cells(notebook)):
        yield "does not show the road of the course"
    if sum("exercises.check(" in cell.source for cell in code_cells(notebook)) < 3:
        yield "has fewer than three exercises"

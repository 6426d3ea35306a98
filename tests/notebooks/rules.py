"""The rules every notebook keeps (DESIGN: Notebooks), and what breaks them, as sentences."""

import json
import re
import statistics
from collections.abc import Iterator
from itertools import groupby

import nbformat

from course_authors.notebooks import BADGE_TAG, SETUP_TAG, badge, setup
from tests.notebooks.blanks import is_blank, is_folded

MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|work|Users|mnt|opt|var|workspace)/|[A-Z]:\\\\")
# the cell tag by which nbval runs a cell and does not compare its output
IGNORED_TAG = "nbval-ignore-output"
# Words of the Markdown cells, without the targets of links, and functions: of a notebook, and of those that have more.
# The notebooks that everybody reads have at most ALL_WORDS together.
WORDS, LONGEST = 2800, {"04_gpt2_by_hand.ipynb": 3900, "04_gpt2_to_llama.ipynb": 2600, "06_rewards.ipynb": 2600}
ALL_WORDS, OPTIONAL = 21_000, ("04_gpt2_to_llama", "06_rewards")
FUNCTIONS, MOST = 8, {"04_gpt2_by_hand.ipynb": 30, "04_gpt2_to_llama.ipynb": 12, "06_rewards.ipynb": 14}
LINK_TARGET = re.compile(r"\]\([^)]*\)")


def problems(notebook: nbformat.NotebookNode, name: str) -> list[str]:
    """What a learner would meet."""
    return [*_cells(notebook), *_outputs(notebook), *_shared_cells(notebook, name)]


def unlike_the_others(notebook: nbformat.NotebookNode, name: str) -> list[str]:
    """What makes a notebook longer, denser or otherwise built than the others: for `make rehearse`."""
    return [*_lengths(notebook, name), *_parts(notebook)]


def words(notebook: nbformat.NotebookNode) -> int:
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return sum(len(LINK_TARGET.sub("]", text).split()) for text in texts)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _cells(notebook: nbformat.NotebookNode) -> Iterator[str]:
    code = code_cells(notebook)
    for cell in filter(is_folded, code):
        if not cell.metadata.get("jupyter", {}).get("source_hidden") or cell.metadata.get("cellView") != "form":
            yield f"cell {cell.id} is folded on the site, not in JupyterLab and Colab"
        if not cell.source.startswith("# @title "):
            yield f"folded cell {cell.id} has no `# @title`"
    source = "\n".join(cell.source for cell in code)
    if re.search(r"^\s*!|^%%(?:bash|sh|script)|^\s*%(?:sx|system)\b|get_ipython\(\)\.system", source, re.M):
        yield "has a shell escape, whose failure would pass unnoticed"
    if sum(IGNORED_TAG in cell.metadata.get("tags", []) for cell in code) > len(code) / 5:
        yield "more than one code cell in five is not compared"
    if sum("exercises.check(" in cell.source for cell in code) < 3:
        yield "has fewer than three exercises"


def _lengths(notebook: nbformat.NotebookNode, name: str) -> Iterator[str]:
    limit = LONGEST.get(name, WORDS)
    if words(notebook) > limit:
        yield f"has {words(notebook)} words, allowed: {limit}"
    code = code_cells(notebook)
    folded, read = [cell for cell in code if is_folded(cell)], [cell for cell in code if not is_folded(cell)]
    if (longest := max(map(_lines, folded), default=0)) > 40:
        yield f"longest folded cell has {longest} lines, allowed: 40"
    lengths = sorted(map(_lines, read))
    if statistics.median(lengths) > 6:
        yield f"median length of code cells is {statistics.median(lengths)} lines, allowed: 6"
    if lengths[-1] > 25:
        yield f"longest code cell has {lengths[-1]} lines, allowed: 25"
    if sum(length >= 15 for length in lengths) > len(lengths) / 10:
        yield "more than one code cell in ten has 15 lines or more"
    if widest := max((line for cell in code for line in cell.source.split("\n")), key=len)[100:]:
        yield f"has a code line wider than 100 characters, by {widest!r}"
    if sum(cell.cell_type == "markdown" for cell in notebook.cells) < 1.4 * len(read):
        yield "has fewer than 1.4 markdown cells for a code cell"
    for kind, run in groupby(cell.cell_type for cell in notebook.cells if not is_folded(cell)):
        if kind == "code" and len(list(run)) > 2:
            yield "has more than two code cells in a row"
    # Without those that the learner writes and the course's versions of them; others belong into the library.
    helpers = "\n".join(cell.source for cell in read if not is_blank(cell))
    functions = MOST.get(name, FUNCTIONS)
    if len(re.findall(r"^\s*def ", helpers, re.M)) > functions:
        yield f"defines more than {functions} functions"
    if (booleans := sum(len(re.findall(r"\b(?:True|False)\b", text)) for text in _texts(notebook))) > 3:
        yield f"prints True or False {booleans} times, allowed: 3; print the numbers"


def _parts(notebook: nbformat.NotebookNode) -> Iterator[str]:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    parts = ("| minutes |", "After this chapter you can", "(core)", "(optional)", "**Predict", "## Exercises")
    for part in (*parts, "## Summary", "**Sources.**", "**Next:**"):
        if part not in text:
            yield f"lacks {part!r}"
    first = next((i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"), 0)
    if not any("After this chapter you can" in cell.source for cell in notebook.cells[:first]):
        yield "states its goals after the first code cell"
    if not any("overview(" in cell.source for cell in code_cells(notebook)):
        yield "does not show the overview of the course"


def _lines(cell: nbformat.NotebookNode) -> int:
    return sum(bool(line.strip()) for line in cell.source.split("\n"))


def _texts(notebook: nbformat.NotebookNode) -> list[str]:
    """What is printed, and values without their images."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs]


def _outputs(notebook: nbformat.NotebookNode) -> Iterator[str]:
    code = code_cells(notebook)
    for number, cell in enumerate(code, 1):
        if any(output.output_type == "error" for output in cell.outputs):
            yield f"code cell {number} ends in an error"
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        yield "was not executed from top to bottom"
    if any("\ufffd" in text for text in _texts(notebook)):
        yield "prints a replacement character: a text with broken bytes"
    stored = json.dumps(notebook, ensure_ascii=False)
    if "widgets" in notebook.metadata or "widget-view" in stored or "widget-state" in stored:
        yield "holds widget state"
    without_images = re.sub(r'"image/png": "[^"]*"', "", stored)
    if path := MACHINE_PATH.search(without_images):
        yield f"holds a machine path: …{without_images[path.start() : path.end() + 30]}…"


def _shared_cells(notebook: nbformat.NotebookNode, name: str) -> Iterator[str]:
    wanted = {BADGE_TAG: badge(name), SETUP_TAG: setup()}
    for tag, text in wanted.items():
        found = [cell.source for cell in notebook.cells if tag in cell.metadata.get("tags", [])]
        if found != [text]:
            yield f"its {tag} cell is not in step; run `course notebooks`"

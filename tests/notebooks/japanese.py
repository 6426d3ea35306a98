"""Runs every Japanese notebook by nbval under COURSE_LANG=ja, and looks at its stored form in a real JupyterLab.

    PYTHONPATH=docs python -m tests.notebooks.japanese [NAME ...]

Writes a row a notebook to japanese.md beside this file, as soon as it is done; rows of other notebooks stay. Screenshots
of each whole notebook go to output/jupyterlab/ja/NAME. Takes about 30 minutes on two cores, most of it for products.
`make test` runs two of the notebooks.
"""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import nbformat
from course_lib.paths import NOTEBOOKS, REPOSITORY
from course_lib.workspace.chapters import CHAPTERS

from tests.browser import chromium
from tests.notebooks.lab import HEIGHT, WIDTH, Notebook, running_lab
from tests.notebooks.test_nbval import run_nbval
from tests.words import edition

RECORD = Path(__file__).with_name("japanese.md")
SCREENSHOTS = REPOSITORY / "output/jupyterlab/ja"
HEAD = """# Records of the Japanese notebooks

`python -m tests.notebooks.japanese`: nbval (strict, as in `make test`) under COURSE_LANG=ja, products built anew; then the stored notebook, opened in JupyterLab.
Too wide: code cells and outputs that scroll sideways. English: runs of four or more English words outside code, titles of papers and commands left out.

| notebook | day | code cells | nbval | seconds | too wide | images not shown | English |
|---|---|---|---|---|---|---|---|
"""
# Everything that a reader sees but code: text cells, and outputs without the drawings' alternative texts.
TEXTS = """() => [...document.querySelectorAll('.jp-MarkdownOutput, .jp-OutputArea-output')].map(each => {
    const copy = each.cloneNode(true);
    copy.querySelectorAll('code, pre code, a').forEach(code => code.remove());
    return copy.textContent;
})"""
# The badge comes from Colab's host.
BROKEN = """() => [...document.querySelectorAll('.jp-Notebook img')]
    .filter(image => !image.naturalWidth && !image.src.startsWith('https:')).length"""
ENGLISH = re.compile(r"[A-Za-z][A-Za-z’'-]+(?:,? [A-Za-z][A-Za-z’'-]+){3,}")


def main() -> None:
    names = sys.argv[1:] or [path.stem for chapter in CHAPTERS for path in chapter.paths]
    os.environ["COURSE_LANG"] = "ja"
    failed = False
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        folder, workspace = Path(temporary) / "notebooks", Path(temporary) / "workspace"
        shutil.copytree(NOTEBOOKS / "ja", folder)
        with running_lab(folder, workspace) as address:
            for name in names:
                if (late := edition.notebook(Path(f"{name}.ipynb"))) in edition.behind():
                    print(f"{late} is behind the English notebook: left out", flush=True)
                    continue
                print(name, flush=True)
                start, state = time.monotonic(), "passed"
                try:
                    run_nbval(NOTEBOOKS / "ja" / f"{name}.ipynb", workspace)
                except AssertionError as error:
                    state, failed = "failed", True
                    print(error)
                seconds = time.monotonic() - start
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                _record(name, f"{state} | {seconds:.0f}", *_look(Notebook(page, address, name)))
                page.close()
    sys.exit(failed)


def _look(notebook: Notebook) -> Iterator[str]:
    notebook.screenshots(SCREENSHOTS / notebook.name)
    english = [found for text in notebook.page.evaluate(TEXTS) for found in ENGLISH.findall(text)]
    yield ", ".join(notebook.too_wide()) or "none"
    yield str(notebook.page.evaluate(BROKEN))
    yield ", ".join(dict.fromkeys(english)) or "none"
    notebook.close()


def _record(name: str, *columns: Any) -> None:
    """Replaces or adds the row of a notebook."""
    cells = nbformat.read(NOTEBOOKS / "ja" / f"{name}.ipynb", as_version=4).cells
    code = sum(cell.cell_type == "code" for cell in cells)
    lines = RECORD.read_text(encoding="utf8").splitlines() if RECORD.is_file() else []
    rows = [line for line in lines if line.startswith("| 0") and not line.startswith(f"| {name} ")]
    rows.append(f"| {name} | {date.today()} | {code} | {' | '.join(columns)} |")
    RECORD.write_text(HEAD + "\n".join(sorted(rows)) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()

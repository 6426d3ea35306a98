"""A small site with one notebook: absolute links lead to its pages, and the course's versions of blanks are folded."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from course_lib.paths import REPOSITORY
from lxml import html
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_authors.notebooks import ABSOLUTE
from tests.notebooks.test_rules import BLANK, FOLDED

CELLS = [
    new_markdown_cell(
        f"# 1 · Corpus\n\nA [token]({ABSOLUTE}docs/glossary.md#token), in [all terms]({ABSOLUTE}docs/glossary.md) and "
        f"[code]({ABSOLUTE}course_lib/cli.py), [elsewhere]({ABSOLUTE}docs/scale.md#x)."
    ),
    new_code_cell(BLANK),
    new_code_cell("# @title The course's version\nf_ours = 1", metadata=FOLDED),
    new_code_cell("f(3)"),
]
FILES = {
    "conf.py": """
extensions = ["myst_nb", "course_site.editions", "course_site.links", "course_site.notebook_pages"]
root_doc, html_theme, nb_execution_mode, myst_heading_anchors = "docs/index", "basic", "off", 6
include_patterns = ["docs/*.md", "notebooks/*.ipynb"]
""",
    "docs/index.md": "# Home\n\n```{toctree}\n/docs/glossary\n/notebooks/01\n```\n",
    "docs/glossary.md": "# Glossary\n\n## Words\n\n### Token\n\n**語** · A piece.\n",
}


def build(folder: Path, language: str, cells: list[nbformat.NotebookNode]) -> tuple[str, html.HtmlElement]:
    """Builds the site. Returns the warnings and the notebook's page."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf8")
    (folder / "notebooks").mkdir()
    nbformat.write(
        new_notebook(cells=cells, metadata={"language_info": {"name": "python"}}), folder / "notebooks/01.ipynb"
    )
    options = ["-q", "-D", f"language={language}", str(folder), str(folder / "html")]
    environment = os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(REPOSITORY / "docs")}
    command = [sys.executable, "-m", "sphinx", *options]
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stderr
    return built.stderr, html.parse(str(folder / "html/notebooks/01.html")).getroot()


@pytest.mark.parametrize("language", ["en", "ja"])
def test_absolute_links_and_folded_cells(language: str, tmp_path: Path) -> None:
    warnings, page = build(tmp_path, language, CELLS)
    assert warnings == ""
    links = {link.text_content(): link.get("href") for link in page.xpath("//section/p/a")}
    glossary = "../docs/glossary.html"
    elsewhere = {
        "en": ("elsewhere", f"{ABSOLUTE}docs/scale.md#x"),
        "ja": ("elsewhere（英語）", "../../docs/scale.html#x"),
    }
    expected = {"token": f"{glossary}#token", "all terms": glossary, "code": f"{ABSOLUTE}course_lib/cli.py"}
    assert links == expected | dict([elsewhere[language]])
    (folded,) = page.xpath("//details")
    assert "f_ours" in folded.text_content() and folded.get("open") is None
    assert "f(3)" not in folded.text_content() and "def f(x)" not in folded.text_content()


def test_an_absolute_link_to_no_term_is_a_warning(tmp_path: Path) -> None:
    cell = new_markdown_cell(f"# 1\n\n[x]({ABSOLUTE}docs/glossary.md#no-term)")
    assert "no-term" in build(tmp_path, "en", [cell])[0]

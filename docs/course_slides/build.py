"""Decks → HTML pages that need no network, by nbconvert's SlidesExporter and the reveal.js in sphinx-revealjs."""

import re
import shutil
from html import escape
from importlib.resources import as_file, files
from pathlib import Path

import nbformat
from course_lib.files import atomic_folder
from course_lib.language.words import SOURCE
from course_lib.paths import NOTEBOOKS
from nbconvert import SlidesExporter

from course_authors.notebooks import ABSOLUTE
from course_slides.cells import slides

HERE = Path(__file__).parent
# what a deck loads of reveal.js, with its license
REVEAL = ("LICENSE", "dist/reset.css", "dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js")
# the fonts of matplotlib-fontja: IPAexGothic with its license
FONT = ("ipaexg.ttf", "IPA_Font_License_Agreement_v1.0.txt")
OWN = ("slides.css", "slides.js")
# Links to another notebook, relative or absolute, and to another file of the repository.
CHAPTER = re.compile(rf"\]\((?:{re.escape(ABSOLUTE)}notebooks/(?:ja/)?)?(\d\w+)\.ipynb(?:#[^)]*)?\)")
FILE = re.compile(r"\]\((?:\.\./)+([^)]+)\)")

INDEX = """<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ font: 18px/1.6 sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em; color: #1f2933 }}</style>
</head>
<body>
<h1>{title}</h1>
<ul>
{items}
</ul>
<p>{keys}</p>
</body>
</html>
"""
# Language → what the index says.
WORDS = {
    "en": {
        "title": "Slides of the course",
        "slides": ", {count} slides",
        "keys": "Keys: arrows or Space to move, O for an overview, S for the window with the speaker notes, F for the"
        " full screen, ? for all keys. <code>?showNotes=true</code> in the address shows the notes beside each slide,"
        " and <code>?view=print</code> lays out the slides for printing.",
    },
    "ja": {
        "title": "本コースのスライド",
        "slides": "（{count}枚）",
        "keys": "キー操作：矢印キーまたはスペースで移動、Oで一覧、Sで発表者ノートのウィンドウ、Fで全画面、"
        "?ですべてのキーを表示します。アドレスに <code>?showNotes=true</code> を付けると各スライドの横にノートを、"
        "<code>?view=print</code> を付けると印刷用の配置で表示します。",
    },
}


def write(notebooks: list[Path], folder: Path, language: str = SOURCE) -> dict[str, tuple[int, int]]:
    """Write a deck for each notebook, an index, and the files that they load, into a new folder.

    Args:
        notebooks: notebooks with outputs. They are not executed.
        folder: the folder to create or replace. It changes only when all decks are written.
        language: the language of the notebooks.

    Returns:
        file name of the deck → number of sections and of slides
    """
    written: dict[str, tuple[int, int]] = {}
    titles: dict[str, str] = {}
    exporter = SlidesExporter(  # type: ignore[no-untyped-call]
        template_name="deck",
        extra_template_basedirs=[str(HERE)],
        reveal_url_prefix="reveal.js",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
        language_code=language,
    )
    with atomic_folder(folder, ours=True) as new:
        for path in notebooks:
            page, title, counts = deck(path, exporter)
            (new / f"{path.stem}.html").write_text(page, encoding="utf8")
            written[f"{path.stem}.html"], titles[f"{path.stem}.html"] = counts, title
        _copy_files(new)
        said = WORDS[language]
        items = "\n".join(
            f'<li><a href="{name}">{escape(titles[name])}</a>{said["slides"].format(count=count)}</li>'
            for name, (_, count) in written.items()
        )
        (new / "index.html").write_text(INDEX.format(items=items, language=language, **said), encoding="utf8")
    return written


def deck(path: Path, exporter: SlidesExporter) -> tuple[str, str, tuple[int, int]]:
    """Return the HTML page of a notebook's deck, its title, and the number of sections and of slides."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    made = slides(notebook.cells, exporter.language_code, english(path))
    title = made[0].cells[0].source.lstrip("# ")
    notebook.metadata["title"] = title
    notebook.cells = [cell for slide in made for cell in slide.marked()]
    for number, cell in enumerate(notebook.cells):
        # A cell that is shown on two slides gets an id for each, and the same notebook always gives the same page.
        cell.id = f"cell-{number}"
        if cell.cell_type == "markdown":
            source = CHAPTER.sub(r"](\1.html)", cell.source)
            cell.source = FILE.sub(rf"]({ABSOLUTE}\1)", source)
    page, _ = exporter.from_notebook_node(notebook)
    return page, title, (sum(slide.section for slide in made), len(made))


def english(path: Path) -> dict[str, str]:
    """Return the ids and sources of the cells of the course's own notebook with the same name."""
    original = nbformat.read(NOTEBOOKS / path.name, as_version=4)  # type: ignore[no-untyped-call]
    return {cell.id: cell.source for cell in original.cells}


def _copy_files(folder: Path) -> None:
    """Copy reveal.js, the font, the style sheet and the script to the folder of the decks."""
    (folder / "reveal.js").mkdir()
    with as_file(files("sphinx_revealjs") / "_static" / "revealjs") as reveal:
        for name in REVEAL:
            shutil.copy(reveal / name, folder / "reveal.js")
    with as_file(files("matplotlib_fontja") / "fonts") as fonts:
        for name in FONT:
            shutil.copy(fonts / name, folder)
    for name in OWN:
        shutil.copy(HERE / name, folder)

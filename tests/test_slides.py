"""Slides: generated from the notebooks' cells, without network, and no slide is taller or wider than the window."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lxml.html
import nbformat
import pytest
from course_lib.paths import NOTEBOOKS
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_authors import editions
from course_authors.notebooks import ABSOLUTE
from course_slides import build
from course_slides.cells import CORE, Slide, slides
from course_slides.prose import blocks, leading, sentences
from tests.browser import chromium
from tests.waiting import LIMIT
from tests.words import edition
from tests.words.edition import skip_if_behind

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
LONG = "The first sentence says why. " + "More of the same. " * 30


def texts(slide: Slide) -> list[str]:
    return [cell.source for cell in slide.cells]


def printed(text: str) -> Any:
    return new_output("stream", name="stdout", text=text)


# prose


def test_sentences() -> None:
    for found in (
        ["One.", "Two! `a. B` is code.", "*So* is three?"],
        ["See [A. B. See](https://a.b/C. D) and (Lee et al. 2022. Then more).", "Next."],
        ["See e.g. Lee et al. Here 0.5 of 1,000 remain.", "雨が降る。", "次。"],
    ):
        assert sentences(" ".join(found)) == found


def test_no_space_stands_between_japanese_sentences() -> None:
    found = ["「言った。」と彼は言う。", "値は0.5（前の例。後の例）です。", "**予想してから。変える**：次。"]
    assert sentences("".join(found)) == found
    assert leading("".join(found), 1000) == ("".join(found), "")
    assert leading("".join(found), 1000, introduces=True) == ("".join(found[:-1]), found[-1])


# cells


def test_a_section_begins_a_slide_and_its_cells_stand_below_it() -> None:
    made = slides([
        new_markdown_cell("# 1 · Corpus"),
        new_markdown_cell("badge", metadata={"tags": ["badge"]}),
        new_code_cell("import course_lib", metadata={"tags": ["setup"]}),
        new_markdown_cell("## 1.1 Two sources (core)"),
        new_markdown_cell(LONG + "Count them:"),
        new_code_cell("print(2)", outputs=[printed("2\n")]),
        new_markdown_cell("Two remain."),
        new_markdown_cell("### A figure"),
        new_code_cell("plot()", outputs=[new_output("execute_result", data={"image/png": "aGk=", "text/plain": "<F>"})]),
        new_markdown_cell("## Exercises"),
        new_markdown_cell("**1.** Write `f`."),
        new_code_cell("exercises.check(1, ...)"),
        new_markdown_cell("**Sources.** A book."),
    ])  # fmt: skip
    assert [slide.section for slide in made] == [True, True, False, False, True, False]
    assert texts(made[0]) == ["# 1 · Corpus"]
    assert texts(made[1])[0] == "## 1.1 Two sources"
    assert texts(made[1])[1].startswith("The first sentence says why. More") and len(texts(made[1])[1]) <= 380
    assert made[1].notes == [LONG.strip() + " Count them:"]
    assert texts(made[2]) == ["#### 1.1 Two sources", "Count them:", "print(2)", "Two remain."]
    assert texts(made[3]) == ["#### 1.1 Two sources · A figure", "plot()"]
    # The code of a figure is in the notes.
    assert made[3].cells[1].metadata["transient"]["remove_source"] and "plot()" in made[3].notes[0]
    assert texts(made[5]) == ["#### Exercises", "**1.** Write `f`."]
    assert made[5].notes == ["**Sources.** A book."]


def test_blanks_and_their_folded_solutions_are_left_out() -> None:
    made = slides([
        new_markdown_cell("## 1.1 Weights"),
        new_markdown_cell("Write it:"),
        new_code_cell("def f(x): ...\nexercises.check(1, f)"),
        new_code_cell("# @title The course's version\nf = exercises.choose(1, f, f_ours)", metadata={"tags": ["hide-input"]}),
        new_code_cell("f(3)"),
    ])  # fmt: skip
    assert [texts(slide)[1:] for slide in made] == [[], ["Write it:", "f(3)"]]


def test_absolute_links_lead_to_decks_and_those_to_the_glossary_are_words(tmp_path: Path) -> None:
    text = f"[A token]({ABSOLUTE}docs/glossary.md#token), [next]({ABSOLUTE}notebooks/{PATHS[1].name}#x), [doc]({ABSOLUTE}a.md)."
    cells = [new_markdown_cell("# 1 · Corpus"), new_markdown_cell(text)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / PATHS[0].name)
    build.write([tmp_path / PATHS[0].name], tmp_path / "slides")
    page = lxml.html.parse(str(tmp_path / f"slides/{PATHS[0].stem}.html"))
    assert [link.get("href") for link in page.xpath("//section//a")] == [f"{PATHS[1].stem}.html", f"{ABSOLUTE}a.md"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_sentence_and_cell_is_on_a_slide_or_in_its_notes(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    made = slides(notebook.cells)
    assert_nothing_is_lost(notebook.cells, made)


def assert_nothing_is_lost(cells: list[Any], made: list[Slide]) -> None:
    """Nothing of the lesson is lost, and nothing is on the slides that is not in the notebook."""
    shown = "\n".join(text for slide in made for text in [*texts(slide), *slide.notes])
    plain, missing = re.sub(r"\s+", " ", shown), list[str]()
    for cell in cells:
        if {"badge", "setup", "hide-input"} & set(cell.metadata.get("tags", [])) or (
            "exercises" in cell.source and cell.cell_type == "code"
        ):
            continue
        found = [each for block in blocks(cell.source) for each in sentences(CORE.sub("", block.text))]
        found = [cell.source] if cell.cell_type == "code" else found
        missing += [each for each in found if re.sub(r"^#+ |\s+", " ", each).strip() not in plain]
    assert missing == []
    headings = [re.findall("^##? ", cell.source, re.MULTILINE) for cell in cells if cell.cell_type == "markdown"]
    assert sum(slide.section for slide in made) == sum(map(len, headings))


# pages


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decks") / "slides"
    counts = build.write(PATHS, folder)
    assert list(counts) == [f"{path.stem}.html" for path in PATHS]
    return folder


def test_a_page_loads_only_files_beside_it(decks: Path) -> None:
    for path in decks.glob("*.html"):
        page = path.read_text(encoding="utf8")
        tree = lxml.html.fromstring(page.encode())
        files = [name for name in tree.xpath("//@src | //link/@href") if not name.startswith("data:")]
        assert path.name == "index.html" or len(files) == 6
        assert all((decks / name).is_file() for name in files)
        assert not re.search(r"url\(['\"]?(http|//)|@import", page)
        # every figure and drawing has an alternative text
        texts = [image.get("alt", "") for image in tree.xpath("//img")]
        assert all(len(text) > 12 and not text.startswith("No description") for text in texts)
        # links to other chapters lead to their decks
        local = [link for link in tree.xpath("//a/@href") if not link.startswith("http")]
        assert [link for link in local if link.endswith(".ipynb")] == []
        assert all((decks / link.partition("#")[0]).is_file() for link in local if link.partition("#")[0]), local
    for path in [*decks.glob("*.css"), *decks.glob("reveal.js/*.css")]:
        named = re.findall(r'url\("?(?!data:)([^")]+)"?\)', path.read_text())
        assert all((path.parent / name).is_file() for name in named)


@pytest.fixture(scope="module")
def page(decks: Path) -> Iterator[Any]:
    """A page of a real Chromium that has no network, and records what it asks for."""
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
        context.set_default_timeout(LIMIT * 1000)
        yield context.new_page()


MEASURE = """() => {
    const found = [];
    Reveal.getSlides().forEach(slide => {
        const at = Reveal.getIndices(slide);
        Reveal.slide(at.h, at.v);
        const box = document.querySelector('.reveal').getBoundingClientRect();
        // the visible elements, and the letters in pixels
        const inside = [...slide.querySelectorAll('*')].filter(each => each.getClientRects().length && !each.closest('aside'));
        const bottom = Math.max(...inside.map(each => each.getBoundingClientRect().bottom));
        const right = Math.max(...inside.map(each => each.getBoundingClientRect().right));
        const letters = inside.filter(each => each.matches('p, pre, li, td'))
            .map(each => parseFloat(getComputedStyle(each).fontSize));
        const images = [...slide.querySelectorAll('img')];
        found.push({
            title: slide.textContent.trim().slice(0, 60), at: [at.h, at.v], bottom, right, width: box.width,
            letters: Math.min(...letters, 99), size: parseFloat(getComputedStyle(slide).fontSize),
            broken: images.filter(each => !each.naturalWidth).length,
            drawn: Math.min(...images.map(each => each.getBoundingClientRect().height), 999),
        });
    });
    return found;
}"""


def measure(page: Any, deck: Path) -> list[dict[str, Any]]:
    page.goto(deck.as_uri())
    page.wait_for_function("document.body.dataset.fitted")
    measured: list[dict[str, Any]] = page.evaluate(MEASURE)
    return measured


def overflowing(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The slides that are too tall or wide, have letters too small to read, or images that are not shown."""
    return [
        slide for slide in measured
        if slide["bottom"] > 721 or slide["right"] > 1281 or slide["letters"] < 11 or slide["broken"]
    ]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_slide_overflows(path: Path, decks: Path, page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    measured = measure(page, decks / f"{path.stem}.html")
    assert len(measured) == len(slides(nbformat.read(path, as_version=4).cells))
    assert not overflowing(measured) and not problems
    assert [slide for slide in measured if slide["drawn"] < 200] == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert page.evaluate("Reveal.hasPlugin('notes')")
    assert page.evaluate("document.fonts.check('20px \"Course Japanese Code\"', '予測')")


def test_a_japanese_deck(tmp_path: Path, page: Any) -> None:
    """It has as many sections as the English one, says everything in Japanese, and fits."""
    skip_if_behind(edition.notebook(PATHS[1]))
    path = editions.build("ja", tmp_path / "ja")[1]
    cells, english = nbformat.read(path, as_version=4).cells, build.english(path)
    made = slides(cells, "ja", english)
    assert_nothing_is_lost(cells, made)
    original = slides(nbformat.read(PATHS[1], as_version=4).cells)
    assert sum(slide.section for slide in made) == sum(slide.section for slide in original)
    # Goals, a prediction and exercises have slides of their own; the sources are in the notes.
    shown = ["\n".join(texts(slide)[1:]) for slide in made]
    for start in ("**この章の目標**", "**予想してから", "**4.**"):
        assert sum(text.startswith(start) for text in shown) == 1
    assert not any("**出典**" in text for text in shown) and "**出典**" in "\n".join(made[-1].notes)

    assert list(build.write([path], tmp_path / "slides", "ja")) == [f"{path.stem}.html"]
    measured = measure(page, tmp_path / f"slides/{path.stem}.html")
    assert len(measured) == len(made) and page.evaluate("document.documentElement.lang") == "ja"
    assert overflowing(measured) == []

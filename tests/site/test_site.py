"""The site, English and Japanese: built once as by `make site`, its pages as HTML, and in headless Chromium.

Without a Chromium on PATH, the tests in it are skipped.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from course_lib.command_line import command_table
from course_lib.command_line.from_options import settings_class
from course_lib.paths import REPOSITORY
from course_lib.settings import config
from course_lib.settings.profiles import CONFIGS
from course_lib.workspace.chapters import CHAPTERS

from tests.browser import chromium
from tests.site.pages import Page, broken_links
from tests.waiting import LIMIT
from tests.words.edition import behind

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
HOME = "docs/index.html"
JAPANESE_HOME = f"ja/{HOME}"
# Pixels of the page outside the window.
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
NOTEBOOKS = [f"notebooks/{path.stem}.html" for chapter in CHAPTERS for path in chapter.paths]
# The Japanese pages that are opened in Chromium: one of each kind, and the longest.
OPENED = [
    f"ja/{name}"
    for name in (
        HOME, "README.html", NOTEBOOKS[0], NOTEBOOKS[4], "docs/glossary.html", "docs/instructor/index.html",
        "docs/instructor/solutions.html", "docs/several-nodes.html", "genindex.html", "search.html",
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site. A warning of the build is an error, in Japanese only if nothing is behind."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "course_site", "-o", str(folder), "--jobs", "1"]
    environment = os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(REPOSITORY / "docs")}
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stderr[-4000:]
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    starts = ("index.html", "ja/index.html")
    return {name: Page(site, name) for name in names if name not in starts and "/_" not in f"/{name}"}


def test_every_page_keeps_the_rules(pages: dict[str, Page]) -> None:
    assert [f"{page.name}: {problem}" for page in pages.values() for problem in page.problems()] == []


def test_every_link_leads_somewhere(pages: dict[str, Page], site: Path) -> None:
    assert sum(len(page.links()) for page in pages.values()) > 3000
    # A Japanese page that is behind may name a place that its English one has no more.
    assert [link for link in broken_links(pages) if not (behind() and link.startswith("ja/"))] == []
    for folder in ("", "ja"):
        start = (site / folder / "index.html").read_text(encoding="utf8")
        assert set(re.findall(r"docs/[\w.]+", start)) == {HOME}


def test_every_notebook_is_a_chapter_with_its_outputs_and_a_colab_button(pages: dict[str, Page]) -> None:
    for name in NOTEBOOKS:
        tree = pages[name].tree
        colab = [link for link in tree.iter("a") if "colab.research.google.com" in link.get("href", "")]
        assert {link.text_content().strip() for link in colab} == {"Open in Colab", "Colab"}, name
        assert all(link.get("href").endswith(f"/blob/main/{name.replace('.html', '.ipynb')}") for link in colab), name
        assert len(tree.xpath("//div[contains(@class, 'cell_output')]")) > 20, name
    # Screen readers change their voice for Japanese words.
    assert len(pages[NOTEBOOKS[1]].tree.xpath("//p//span[@lang='ja']")) > 20
    assert set(re.findall(r'href="\.\./(notebooks/\w+\.html)"', pages[HOME].path.read_text())) == set(NOTEBOOKS)


def test_every_page_leads_to_its_other_edition(pages: dict[str, Page]) -> None:
    japanese = [name for name in pages if name.startswith("ja/")]
    assert {f"ja/{name}" for name in [HOME, *NOTEBOOKS, "README.html", "search.html"]} <= set(japanese)
    for name, page in pages.items():
        language, other = ("ja", "en") if name in japanese else ("en", "ja")
        assert page.tree.get("lang") == language, name
        (switch,) = page.tree.xpath("//a[@class='language-switch']")
        assert switch.get("hreflang") == switch.get("lang") == other
        target = name.removeprefix("ja/") if language == "ja" else f"ja/{name}"
        has_both = target in pages
        assert page.target(switch.get("href")) == (target if has_both else JAPANESE_HOME, ""), name
        alternates = {link.get("hreflang"): link.get("href") for link in page.tree.xpath("//link[@hreflang]")}
        expected = {language: (name, ""), other: (target, "")} if has_both else {}
        assert {language: page.target(address) for language, address in alternates.items()} == expected


def test_japanese_pages_say_which_links_lead_to_english_ones(pages: dict[str, Page]) -> None:
    found = set()
    for name, page in pages.items():
        if not name.startswith("ja/"):
            continue
        # An address that no page got, a character that could not be read, and Japanese words marked in Japanese.
        text = page.path.read_text(encoding="utf8")
        shown = 1 if "03_tokenizers" in name else 0  # exercise 3.7 shows what `decode` makes of half a character
        assert "english://" not in text and text.count("\ufffd") == shown, name
        assert not page.tree.xpath("//span[@lang='ja']"), name
        for link in page.tree.iter("a"):
            target = page.target(link.get("href", ""))
            if target and not target[0].startswith("ja/") and link.get("class") != "language-switch":
                assert link.text_content().strip().endswith("（英語）") and link.get("hreflang") == "en", (name, target)
                found.add(target[0])
    assert {"docs/reference/commands.html", "CHANGELOG.html", "CONTRIBUTING.html", "tests/bench/README.html"} <= found


def test_the_japanese_edition_speaks_japanese(pages: dict[str, Page]) -> None:
    home, notebook, glossary = (pages[f"ja/{name}"].tree for name in (HOME, NOTEBOOKS[0], "docs/glossary.html"))
    assert "コーパス" in home.xpath("string(//div[@class='overview'])")
    colab = {link.get("href") for link in notebook.iter("a") if "colab.research.google.com" in link.get("href", "")}
    assert len(colab) == 1 and colab.pop().endswith(f"/blob/main/{NOTEBOOKS[0].replace('/', '/ja/')[:-5]}.ipynb")
    # The index of terms, in the order of the syllabary.
    rows = glossary.xpath("//section[@id='japanese-index']/p")
    assert [row.findtext("strong") for row in rows] == [f"{first}行" for first in "アカサタナハマヤラワ"]
    assert "学習率" in [link.text_content() for link in pages["ja/genindex.html"].tree.iter("a")]


def test_every_command_setting_configuration_and_section_is_listed(pages: dict[str, Page]) -> None:
    reference = [page for name, page in pages.items() if name.startswith("docs/reference/")]
    ids = {identifier for page in reference for identifier in page.ids}
    for words, command in command_table.COMMANDS.items():
        identifier = f"course-{words.replace(' ', '-')}"
        assert identifier in ids
        if cls := settings_class(command.function()):
            assert {f"{identifier}-{key}".replace(".", "-") for key, *_ in config.describe(cls)} <= ids
    assert {section.replace(".", "") for section in config.known_sections()} <= ids
    assert {path.name.replace(".", "") for path in CONFIGS.glob("*.yaml")} <= ids


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of the site on the loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


class Window:
    """A window of the browser that notes what goes wrong in it."""

    def __init__(self, browser: Any, size: dict[str, int]) -> None:
        self.context = browser.new_context(viewport=size)
        self.context.set_default_timeout(LIMIT * 1000)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda said: self._note(f"console: {said.text}") if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self._note(f"error: {error}"))
        self.page.on("requestfailed", lambda request: self._note(f"not loaded: {request.url} {request.failure}"))
        self.page.on("request", lambda request: self._other_host(request.url))

    def _note(self, problem: str) -> None:
        self.errors.append(f"{urlsplit(self.page.url).path}: {problem}")

    def _other_host(self, url: str) -> None:
        if urlsplit(url).hostname not in ("127.0.0.1", None):
            self._note(f"loads from another host: {url}")


@pytest.fixture
def window(browser: Any, request: pytest.FixtureRequest) -> Iterator[Window]:
    window = Window(browser, getattr(request, "param", WIDE))
    yield window
    window.context.close()


def test_every_page_opens_in_both_windows_without_an_error_and_fits(
    window: Window, served: str, pages: dict[str, Page]
) -> None:
    """Every second page is loaded in the phone's window and then made wide."""
    too_wide = []
    for number, name in enumerate([*(name for name in pages if not name.startswith("ja/")), *OPENED]):
        sizes = (WIDE, PHONE) if number % 2 else (PHONE, WIDE)
        window.page.set_viewport_size(sizes[0])
        window.page.goto(f"{served}/{name}")
        for size in sizes:
            window.page.set_viewport_size(size)
            if over := window.page.evaluate(TOO_WIDE):
                too_wide.append(f"{name}: {over} of {size['width']} pixels")
    assert window.errors == [] and too_wide == []


def search(window: Window, served: str, query: str, home: str = HOME) -> list[str]:
    """Searches by the dialog of a home page as a reader does. Returns the pages of the hits, the best first."""
    window.page.goto(f"{served}/{home}")
    window.page.locator(".search-button__button:visible").first.click()
    window.page.keyboard.type(query)
    window.page.keyboard.press("Enter")
    window.page.wait_for_url("**/search.html?q=*")
    window.page.wait_for_function(
        "() => /[Ff]inished|did not match|見つか/.test(document.querySelector('.search-summary')?.innerText)"
    )
    return [link.get_attribute("href") for link in window.page.locator("ul.search > li > a").all()]


# A query → a page that must be among its hits, and one that must not: a name of the library; a Japanese compound, an
# inflected form of 聴く, which stands there in other forms, full-width letters.
QUERIES = {
    "split_sentences": ("docs/reference/library-japanese.html", "docs/reference/library-models.html"),
    "外国人参政権": (NOTEBOOKS[1], NOTEBOOKS[0]),
    "聴いていた": (NOTEBOOKS[0], NOTEBOOKS[1]),
    "ＧＰＴＳＡＮ": ("notebooks/05_gptsan_extra_stage.html", NOTEBOOKS[1]),
}


@pytest.mark.parametrize(("query", "wanted", "unwanted"), [(query, *hits) for query, hits in QUERIES.items()])
def test_search_finds(query: str, wanted: str, unwanted: str, window: Window, served: str) -> None:
    found = [hit.partition("#")[0].partition("?")[0] for hit in search(window, served, query)]
    assert wanted in found and unwanted not in found, found
    assert window.errors == []


def test_japanese_search_finds_japanese_pages(window: Window, served: str) -> None:
    found = [hit.partition("#")[0].partition("?")[0] for hit in search(window, served, "学習率", JAPANESE_HOME)]
    assert found[0] == "docs/glossary.html" and NOTEBOOKS[3] in found and "docs/instructor/room.html" not in found
    assert search(window, served, "存在しない縞馬", JAPANESE_HOME) == []
    assert window.errors == []


def test_both_themes(window: Window, served: str) -> None:
    """The page takes the theme of the system; drawings and plots keep their white card."""
    color = "element => getComputedStyle(element).backgroundColor"
    for scheme, size, background in (("light", WIDE, "rgb(255, 255, 255)"), ("dark", PHONE, "rgb(18, 18, 18)")):
        window.page.emulate_media(color_scheme=scheme)
        window.page.set_viewport_size(size)
        for name in (HOME, NOTEBOOKS[1], "docs/reference/commands-prefix.html", JAPANESE_HOME, f"ja/{NOTEBOOKS[1]}"):
            window.page.goto(f"{served}/{name}")
            assert window.page.locator("body").evaluate(color) == background
            images = window.page.locator(".cell_output img")
            assert {image.evaluate(color) for image in images.all()} <= {"rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"}
            if scheme == "dark" and name in NOTEBOOKS:
                assert images.count() > 2 and images.first.evaluate(color) == "rgb(255, 255, 255)"


def test_keyboard(window: Window, served: str) -> None:
    """The first key leads to the text; the drawing's boxes are reached in order and open their notebooks."""
    window.page.goto(f"{served}/{HOME}")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("() => document.activeElement.textContent") == "Skip to main content"
    window.page.keyboard.press("Enter")
    for name in NOTEBOOKS:
        for _ in range(20):
            window.page.keyboard.press("Tab")
            reached = window.page.evaluate("() => document.activeElement.href?.baseVal")
            if reached:
                break
        assert reached == f"../{name}"
    window.page.keyboard.press("Enter")
    window.page.wait_for_url(f"**/{NOTEBOOKS[-1]}")

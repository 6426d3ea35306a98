"""The site's editions, English and Japanese (in ja/): a switch on every page, and links to what is in English only.

The Japanese edition is built from the stored one, as a tree of course_authors/editions.py with the same paths, so that
a page's other edition is ja/<page>. COURSE_LANG names the edition that is built.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.language.words import SOURCE
from course_lib.paths import NOTEBOOKS, REPOSITORY
from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.directives.other import TocTree
from sphinx.util.matching import get_matching_files
from sphinx.util.osutil import relative_uri

from course_authors import pages

JAPANESE = "ja"
HOME = "docs/index"
# What a link in the Japanese edition says of a page in English.
ENGLISH_ONLY = "（英語）"
# The address of an English page until `_finish_pages` knows where the Japanese page with the link is.
SCHEME = "english://"
WRITTEN = re.compile(rf'(?:class="reference external" )?href="{SCHEME}([^"]*)"')
# Texts of Sphinx and its theme for screen readers and tooltips that their Japanese catalogues lack.
LACKING = {
    "Link to this heading": "この見出しへのリンク",
    "Toggle primary sidebar": "サイドバーの表示を切り替える",
    "Toggle secondary sidebar": "目次の表示を切り替える",
    "Source repositories": "リポジトリ",
    "Color mode": "配色",
    "System Settings": "システムの設定",
    "Main": "サイト",
    "Page": "このページ",
    "Launch interactive content": "ノートブックを実行する",
    "Launch on Colab": "Colabで開く",
    "Copy to clipboard": "クリップボードにコピー",
    "Toggle hidden content": "隠れている内容の表示を切り替える",
}
NAMED = re.compile(rf'((?:title|aria-label|data-bs-title)="|</i>)({"|".join(LACKING)})(?=["<])')
# A link to an English page, behind which the Japanese text says so too.
TWICE = re.compile(rf"{ENGLISH_ONLY}((?:</\w+>)+){ENGLISH_ONLY}")
# The links between the editions of README.md on GitHub.
SWITCH = re.compile(r"^.*\bEnglish\b.* · .*日本語.*\n\n", re.MULTILINE)
ENTRY = re.compile(r"(?:(?P<title>.+) <)?/?(?P<page>[\w./-]+)>?")


def both() -> set[str]:
    """Return the pages that both editions have, such as docs/glossary."""
    sources = (*pages.pages(), *NOTEBOOKS.glob("*.ipynb"))
    translated = [path for path in sources if pages.edition(path, JAPANESE).exists()]
    return {path.relative_to(REPOSITORY).with_suffix("").as_posix() for path in translated} | {"search", "genindex"}


def file_name(config: Config, name: str) -> str:
    """Return the name that a file of the repository, such as docs/ja/glossary.md, has in the edition's tree."""
    return re.sub(rf"^(\w+)/{JAPANESE}/", r"\1/", name) if config.language == JAPANESE else name


def english_address(config: Config, path: Path, anchor: str = "") -> str:
    """Return the address, for now with SCHEME, of a file's page in the English edition; "" if it has none."""
    english = _files(tuple(config.include_patterns), tuple(config.exclude_patterns))
    inside = path.relative_to(REPOSITORY)
    return f"{SCHEME}{inside.with_suffix('.html').as_posix()}{anchor}" if inside.as_posix() in english else ""


@cache
def _files(included: tuple[str, ...], excluded: tuple[str, ...]) -> set[str]:
    """Return the files of the repository that are pages of the English edition."""
    return set(get_matching_files(REPOSITORY, included, excluded))


class Contents(TocTree):
    """Lists of contents: in the Japanese edition, an entry may be a page of the English one."""

    def parse_content(self, toctree: addnodes.toctree) -> None:
        """Replace the entries that name such a page by its address."""
        if self.config.language != SOURCE:
            self.content: StringList = StringList([self._entry(entry) for entry in self.content], "")
        super().parse_content(toctree)

    def _entry(self, entry: str) -> str:
        found = ENTRY.fullmatch(entry)
        if not found:
            return entry
        folder = Path() if f"/{found['page']}" in entry else Path(self.env.docname).parent
        page = folder / found["page"]
        address = english_address(self.config, REPOSITORY / f"{page}.md")
        if not address or page.as_posix() in self.env.found_docs:
            return entry
        heading = re.search("(?m)^# (.*)", (REPOSITORY / f"{page}.md").read_text(encoding="utf8"))
        return f"{found['title'] or (heading or [''])[1]}{ENGLISH_ONLY} <{address}>"


def _switch(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None) -> None:
    """Tell the page's template where the other edition is; search engines and browsers are told in the page's head."""
    has_both = page in both()
    here = f"{page}.html"
    if app.config.language == SOURCE:
        href = relative_uri(here, f"{JAPANESE}/{page if has_both else HOME}.html")
        context["other_edition"] = {"language": JAPANESE, "name": "日本語", "href": href}
    else:
        href = "../" * (page.count("/") + 1) + (here if has_both else f"{HOME}.html")
        context["other_edition"] = {"language": SOURCE, "name": "English", "href": href}
    if has_both:
        file_name = here.rpartition("/")[2]
        for language, address in ((app.config.language, file_name), (context["other_edition"]["language"], href)):
            alternate = f'\n<link rel="alternate" hreflang="{language}" href="{address}">'
            context["metatags"] = context.get("metatags", "") + alternate


def _buttons(app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None) -> None:
    """Let the theme's button for Colab open the Japanese notebook."""
    if app.config.language == SOURCE:
        return
    for group in context.get("header_buttons", ()):
        for button in group.get("buttons", ()):
            if "colab" in button.get("url", ""):
                button["url"] = button["url"].replace("/notebooks/", f"/notebooks/{JAPANESE}/")


def _without_switch(_app: Sphinx, page: str, content: list[str]) -> None:
    """Remove GitHub's links between the editions: the site has its own on every page."""
    if page == "README":
        content[0] = SWITCH.sub("", content[0], count=1)


def _finish_pages(app: Sphinx, error: Exception | None) -> None:
    """Replace, in the written pages, the addresses with SCHEME by relative ones, and English names by Japanese ones."""
    if error or app.builder.format != "html" or app.config.language == SOURCE:
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf8")
        up = "../" * len(path.relative_to(app.outdir).parts)
        replaced = WRITTEN.sub(rf'class="reference internal" href="{up}\1" hreflang="{SOURCE}"', text)
        replaced = NAMED.sub(lambda found: found[1] + LACKING[found[2]], replaced)
        replaced = TWICE.sub(rf"{ENGLISH_ONLY}\1", replaced)
        if replaced != text:
            path.write_text(replaced, encoding="utf8")


def setup(app: Sphinx) -> None:
    """Register the directive and the events."""
    app.add_directive("toctree", Contents, override=True)
    # Before the theme fills the templates, and after it has made the buttons.
    app.connect("html-page-context", _switch, priority=100)
    app.connect("html-page-context", _buttons, priority=900)
    app.connect("source-read", _without_switch)
    app.connect("build-finished", _finish_pages)

"""README, guides, docs and notebooks: links lead somewhere, every command is one of `course`; what is installed is pinned."""

import re
import shlex
import tomllib
from pathlib import Path

import nbformat
import pytest
from course_lib import paths
from course_lib.command_line import command_table

from course_authors.notebooks import ABSOLUTE

ROOT = paths.REPOSITORY
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/instructor").glob("*.md")),
]
# A link to a file of the repository, relative or absolute.
LINK = rf"\]\(((?!https?:|mailto:)[^)\s]+|{re.escape(ABSOLUTE)}[^)\s]+)\)"
NOTEBOOKS = sorted(paths.NOTEBOOKS.glob("*.ipynb"))


def markdown(path: Path) -> str:
    """The text of a page, or of a notebook's Markdown cells."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them, and those that it spells out."""
    text = markdown(path)
    titles = [re.sub(r"<[^>]*>", "", title) for title in re.findall(r"^#+ (.+)$", text, re.M)]
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", markdown(page), flags=re.S)
    # Absolute links are looked up in the checkout, without network.
    assert [target for target in re.findall(LINK, text) if not leads_somewhere(target, page)] == []


def leads_somewhere(target: str, page: Path) -> bool:
    name, _, anchor = target.removeprefix(ABSOLUTE).partition("#")
    path = (ROOT if target.startswith(ABSOLUTE) else page.parent) / name if name else page
    # A page that the site generates from the library.
    if not path.exists() and "reference" in path.parts:
        return True
    is_text = path.suffix in (".md", ".ipynb")
    return path.exists() and (not anchor or not is_text or anchor in anchors(path))


def test_absolute_links_are_checked() -> None:
    page = NOTEBOOKS[0]
    assert leads_somewhere(f"{ABSOLUTE}docs/glossary.md#token", page) and leads_somewhere("../docs/glossary.md", page)
    assert not leads_somewhere(f"{ABSOLUTE}docs/glossary.md#no-term", page)
    assert not leads_somewhere(f"{ABSOLUTE}docs/no-page.md", page)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_named_commands_exist(page: Path) -> None:
    known = set(command_table.app.commands)
    lines = re.findall(r"^ {4}(?:\S+/|srun .*)?course ([a-z].*)$", page.read_text(encoding="utf8"), re.M)
    named = {shlex.split(line.partition("#")[0])[0] for line in lines if line.partition("#")[0].count("'") % 2 == 0}
    assert named <= known


def test_all_that_is_installed_is_pinned() -> None:
    def plain(requirement: str) -> str:
        return re.split(r"[\[<>=]", requirement)[0].strip().lower().replace("_", "-")

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    lines = (ROOT / "requirements.txt").read_text(encoding="utf8").splitlines()
    pinned = [plain(line) for line in lines if "==" in line and line[0] != "#"]
    assert len(pinned) == len(set(pinned))
    extras = {
        name: asked for name, asked in project["optional-dependencies"].items() if name not in ("tracking", "release")
    }
    for asked in (project["dependencies"], *extras.values()):
        assert {plain(each) for each in asked} <= set(pinned)

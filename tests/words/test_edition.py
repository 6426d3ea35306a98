"""The course in another language: its code is the English one, and its links lead on."""

from pathlib import Path

import nbformat
import pytest
from course_lib.language import words
from course_lib.paths import NOTEBOOKS, REPOSITORY
from course_lib.workspace import chapters

from course_authors import editions, pages
from course_authors.cells import same_code
from course_authors.notebooks import ABSOLUTE, SETUP_TAG

PATHS = [path for chapter in chapters.CHAPTERS for path in chapter.paths]


@pytest.fixture(scope="module")
def edition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the Japanese edition, built from the catalogues as they are."""
    folder: Path = tmp_path_factory.mktemp("edition")
    assert editions.build("ja", folder) == [folder / "notebooks" / path.name for path in PATHS]
    return folder


def code(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_code_is_the_same_but_for_strings_and_comments(path: Path, edition: Path) -> None:
    own, english = code(edition / "notebooks" / path.name), code(path)
    assert [cell.id for cell in own] == [cell.id for cell in english]
    for one, other in zip(own, english, strict=True):
        if SETUP_TAG in other.metadata.get("tags", []):
            assert one.source.endswith(other.source) and 'os.environ["COURSE_LANG"] = "ja"' in one.source
        else:
            assert same_code(one.source, other.source), other.id


def test_links_lead_on(edition: Path) -> None:
    texts = [(page, page.read_text(encoding="utf8")) for page in edition.rglob("*.md")]
    for path in (edition / "notebooks" / path.name for path in PATHS):
        cells = nbformat.read(path, as_version=4).cells
        texts += [(path, cell.source) for cell in cells if cell.cell_type == "markdown"]
    for page, text in texts:
        links = [link[2] for link in editions.LINK.finditer(text) if link[2] and "://" not in link[2]]
        assert [link for link in links if not (page.parent / link).exists()] == [], page


def test_links_name_the_translated_headings(edition: Path) -> None:
    index = (edition / "docs/instructor/index.md").read_text(encoding="utf8")
    anchors = [link[3][1:] for link in editions.LINK.finditer(index) if link[2] == "room.md" and link[3]]
    assert anchors and {*anchors} <= {*pages.anchors((edition / "docs/instructor/room.md").read_text(encoding="utf8"))}


def test_absolute_links_lead_to_the_edition() -> None:
    links = editions.Links("ja", None, {})
    for link, moved in (
        ("docs/glossary.md#token", "docs/ja/glossary.md#token"),
        (f"notebooks/{PATHS[0].name}", f"notebooks/ja/{PATHS[0].name}"),
        ("course_lib/cli.py", "course_lib/cli.py"),
        ("no/file.md", "no/file.md"),
    ):
        assert links.moved(f"[x]({ABSOLUTE}{link}).", PATHS[1]) == f"[x]({ABSOLUTE}{moved})."


def test_outputs_are_kept_while_the_code_is_the_same(edition: Path) -> None:
    path = edition / "notebooks" / PATHS[2].name
    stored = nbformat.read(path, as_version=4)
    first, second = [cell for cell in stored.cells if cell.cell_type == "code"][1:3]
    for cell in (first, second):
        cell.outputs, cell.execution_count = [nbformat.v4.new_output("stream", text="x\n")], 7
    second.source += "\nchanged = 1"
    nbformat.write(stored, path)
    editions.build("ja", edition)
    found = {cell.id: cell for cell in code(path)}
    assert found[first.id].outputs[0].text == "x\n" and found[first.id].execution_count == 7
    assert not any(output.get("text") == "x\n" for output in found[second.id].outputs)


def test_the_course_runs_the_notebooks_of_the_readers_language(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executed: list[Path] = []
    monkeypatch.setattr("course_lib.notebooks.execution.execute", lambda source, target: executed.append(source))
    for language in ("", "ja"):
        monkeypatch.setenv(words.VARIABLE, language)
        chapters._run_notebook(PATHS[0], tmp_path, [], {})
    assert executed == [PATHS[0], NOTEBOOKS / "ja" / PATHS[0].name]


@pytest.mark.rehearse
def test_the_stored_edition_is_that_of_the_catalogues() -> None:
    for path, content in editions.files("ja"):
        assert path.read_bytes() == content, f"{path.relative_to(REPOSITORY)}: run `course notebooks --language ja`"

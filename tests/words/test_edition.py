"""The course in another language: its code is the English one, and its links lead on."""

import re
from pathlib import Path

import nbformat
import pytest
from course_lib import cli
from course_lib.language import words
from course_lib.workspace import chapters

from course_authors import catalogs, commands, editions, pages
from course_authors.cells import same_code
from course_authors.notebooks import ABSOLUTE, SETUP_TAG, setup
from tests.words.edition import notebook, skip_if_behind

PATHS = [path for chapter in chapters.CHAPTERS for path in chapter.paths]


@pytest.fixture(scope="module")
def edition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the Japanese edition, built from the catalogues as they are."""
    folder: Path = tmp_path_factory.mktemp("edition")
    assert editions.build("ja", folder) == [folder / "notebooks" / path.name for path in PATHS]
    return folder


def code(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.rehearse
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_code_is_the_same_but_for_strings_and_comments(path: Path, edition: Path) -> None:
    translated, english = code(edition / "notebooks" / path.name), code(path)
    assert [cell.id for cell in translated] == [cell.id for cell in english]
    for one, other in zip(translated, english, strict=True):
        if SETUP_TAG in other.metadata.get("tags", []):
            assert one.source == setup("ja") and 'os.environ["COURSE_LANG"] = "ja"' in one.source
        else:
            assert same_code(one.source, other.source), other.id


@pytest.mark.rehearse
def test_links_lead_on(edition: Path) -> None:
    texts = [(page, page.read_text(encoding="utf8")) for page in edition.rglob("*.md")]
    for path in (edition / "notebooks" / path.name for path in PATHS):
        cells = nbformat.read(path, as_version=4).cells
        texts += [(path, cell.source) for cell in cells if cell.cell_type == "markdown"]
    for page, text in texts:
        links = [link[2] for link in editions.LINK.finditer(text) if link[2] and "://" not in link[2]]
        assert [link for link in links if not (page.parent / link).exists()] == [], page


@pytest.mark.rehearse
def test_links_name_the_translated_headings(edition: Path) -> None:
    index = (edition / "docs/instructor/index.md").read_text(encoding="utf8")
    anchors = [link[3][1:] for link in editions.LINK.finditer(index) if link[2] == "room.md" and link[3]]
    assert anchors and {*anchors} <= {*pages.anchors((edition / "docs/instructor/room.md").read_text(encoding="utf8"))}


@pytest.mark.rehearse
def test_the_kit_names_sections_as_their_headings_do(edition: Path) -> None:
    skip_if_behind(*map(notebook, PATHS))
    headings: dict[str, str] = {}
    for path in PATHS:
        cells = nbformat.read(edition / "notebooks" / path.name, as_version=4).cells
        found = (re.match(r"## (\d[ab]?\+?\.\d+ .+?) *(?:（[^（）]*）|\(\w+\))?$", cell.source, re.M) for cell in cells)
        headings |= {match[1].split()[0]: match[1] for match in found if match}
    named = []
    for page in (edition / "docs/instructor").glob("*.md"):
        named += re.findall(
            r"^[*|].*?(?<=[*|] )(\d[ab]?\+?\.\d+ [^|\n]+?)(?: \||$)", page.read_text(encoding="utf8"), re.M
        )
    assert len(named) > 100
    assert [name for name in named if headings.get(name.split()[0], name) != name] == []


def test_absolute_links_lead_to_the_edition() -> None:
    links = editions.Links("ja", None, {})
    for link, moved in (
        ("docs/glossary.md#token", "docs/ja/glossary.md#token"),
        (f"notebooks/{PATHS[0].name}", f"notebooks/ja/{PATHS[0].name}"),
        ("course_lib/cli.py", "course_lib/cli.py"),
        ("no/file.md", "no/file.md"),
    ):
        assert links.moved(f"[x]({ABSOLUTE}{link}).", PATHS[1]) == f"[x]({ABSOLUTE}{moved})."


@pytest.mark.rehearse
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


def test_the_course_runs_the_notebooks_of_the_readers_language(
    monkeypatch: pytest.MonkeyPatch, small: dict[str, Path]
) -> None:
    """Unless they are behind: with other cells than the English ones."""
    executed: list[Path] = []
    monkeypatch.setattr("course_lib.notebooks.execution.execute", lambda source, target: executed.append(source))
    english, japanese = small["notebook"], small["notebooks"] / "ja/01_a.ipynb"
    for language in ("", "ja"):
        monkeypatch.setenv(words.VARIABLE, language)
        chapters._run_notebook(english, small["root"], [], {})
    notebook = nbformat.read(english, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("b = 2"))
    nbformat.write(notebook, english)
    chapters._run_notebook(english, small["root"], [], {})
    assert executed == [english, japanese, english]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A repository with a notebook, a page and their Japanese editions, which are in step."""
    folders = {"notebooks": tmp_path / "notebooks", "drawings": tmp_path / "drawings"}
    for folder in folders.values():
        folder.mkdir()
    notebook, page = folders["notebooks"] / "01_a.ipynb", tmp_path / "docs/glossary.md"
    page.parent.mkdir()
    cells = [nbformat.v4.new_markdown_cell("[Rain](../docs/glossary.md) falls."), nbformat.v4.new_code_cell("a = 1")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), notebook)
    page.write_text("# Words\n\n[One](../notebooks/01_a.ipynb), [two](../no/file.md).\n", encoding="utf8")
    for module, name, value in (
        (editions, "NOTEBOOKS", folders["notebooks"]), (editions, "REPOSITORY", tmp_path),
        (editions, "DRAWINGS", folders["drawings"]), (pages, "REPOSITORY", tmp_path), (commands, "REPOSITORY", tmp_path), (catalogs, "REPOSITORY", tmp_path),
        (catalogs, "LOCALE", tmp_path / "locale"), (words, "CATALOGUES", tmp_path / "library"),
        (catalogs, "TEXTS", {domain: lambda: iter(()) for domain in catalogs.DOMAINS}),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    editions.build("ja")
    return folders | {"notebook": notebook, "page": page, "root": tmp_path}


def test_what_is_behind_is_listed_and_stays(small: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._main(["words", "ja", "--check", "--release"]) == 0
    assert "files behind the English: 0" in capsys.readouterr().out
    english = nbformat.read(small["notebook"], as_version=4)
    english.cells[1].source = "a = 2"
    nbformat.write(english, small["notebook"])
    (small["drawings"] / "en").mkdir()
    (small["drawings"] / "en/new.svg").write_text("<svg><text>a</text></svg>")
    stored = small["notebooks"] / "ja/01_a.ipynb"
    before = stored.read_bytes()
    for options, code in (["--check"], 0), (["--check", "--release"], 1):
        assert cli._main(["words", "ja", *options]) == code
        said = "".join(capsys.readouterr())
        assert "notebooks/ja/01_a.ipynb: behind" in said and "drawings/ja/new.svg: behind" in said
        assert "docs/ja/glossary.md" not in said
    assert editions.build("ja", only=("02",)) == [] and stored.read_bytes() == before
    assert editions.build("ja", only=("01",)) == [stored]
    assert editions.behind("ja") == [small["drawings"] / "ja/new.svg"]


def test_the_sites_tree_is_the_stored_edition(small: dict[str, Path]) -> None:
    tree = small["root"] / "workspace/ja"
    found = dict(editions.stored("ja", tree))
    assert sorted(path.relative_to(tree).as_posix() for path in found) == ["docs/glossary.md", "notebooks/01_a.ipynb"]
    text = found[tree / "docs/glossary.md"].decode()
    assert "(../notebooks/01_a.ipynb)" in text and "(../no/file.md)" in text
    assert "(../docs/glossary.md)" in found[tree / "notebooks/01_a.ipynb"].decode()

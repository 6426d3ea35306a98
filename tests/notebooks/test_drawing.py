"""The drawings: every file in both languages, the reader's place in the overview, and what is computed from a learner's values."""

import re
import xml.etree.ElementTree as ET
from base64 import b64decode

import pytest
from course_lib.corpus.diagrams import banding
from course_lib.errors import UsageError
from course_lib.japanese.diagrams import lattice
from course_lib.japanese.segment import segment
from course_lib.language import words
from course_lib.notebooks.drawing import FOLDER, Drawing, drawing, overview
from course_lib.notebooks.plot import rows_without_overlap
from course_lib.notebooks.table import Table
from course_lib.subword.diagrams import merge_tree, merges_and_lattice, segmentations
from course_lib.workspace.chapters import CHAPTERS

from tests.words import edition
from tests.words.edition import skip_if_behind

SVG = "{http://www.w3.org/2000/svg}"
MERGES = [("東", "京"), ("大", "学"), ("大学", "院"), ("京", "大")]
SCORES = {"東京": -5.0, "東": -6.5, "京": -6.0, "大": -6.0, "学": -6.2, "院": -6.6, "大学": -4.0, "大学院": -9.0}


def texts(shown: Drawing) -> list[str]:
    """All texts of a drawing, which must be an SVG with a title and a description."""
    root = ET.fromstring(shown.svg)
    assert root.findtext(f"{SVG}title") == shown.title and root.findtext(f"{SVG}desc")
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def cells(shown: Table) -> list[str]:
    """The first line of each cell of a table, which must have a title and a description."""
    root = ET.fromstring(shown.html.replace("<br>", "<br/>"))
    assert root.findtext(".//caption") == shown.title and root.findtext("p") == shown.description
    return [next(cell.itertext(), "") for cell in root.iter("td")]


@pytest.mark.parametrize("name", sorted(path.stem for path in (FOLDER / "en").iterdir()))
def test_every_drawing_has_a_text_alternative(name: str) -> None:
    assert texts(drawing(name))


@pytest.mark.rehearse
@pytest.mark.parametrize("name", sorted(path.stem for path in (FOLDER / "en").iterdir()))
def test_every_drawing_is_there_in_both_languages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    english = texts(drawing(name))
    skip_if_behind(edition.drawing(name))
    monkeypatch.setenv(words.VARIABLE, "ja")
    assert len(texts(drawing(name))) == len(english) and texts(drawing(name)) != english


def test_notebook_receives_an_image_whose_source_is_the_svg() -> None:
    shown = drawing("zero2-step")
    tag = re.fullmatch(r'<img alt="([^"<>]+)" width="(\d+)" src="data:image/svg\+xml;base64,(.+)">', shown.html)
    assert tag and b64decode(tag[3]).decode() == shown.svg and shown.svg.startswith("<svg")


def test_road_marks_the_place_of_each_notebook() -> None:
    marked = {overview(path.stem).svg for chapter in CHAPTERS for path in chapter.paths}
    assert len(marked) == 10 and all(svg != overview().svg for svg in marked)
    assert [text for text in texts(overview("03_tokenizers")) if text.startswith("03")]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="08_more"):
        overview("08_more")
    with pytest.raises(UsageError, match="gpt2-block"):
        drawing("gpt3")


def test_banding_shows_the_candidates() -> None:
    signatures = {"A": [3, 7, 5, 1], "B": [3, 7, 5, 2], "C": [8, 7, 1, 2]}
    shown = banding(signatures, 2)
    assert "A–B" in shown.alt and "A–C" not in shown.alt and "A, B" in cells(shown)
    with pytest.raises(UsageError, match="divide"):
        banding(signatures, 3)


def test_the_cheapest_path_is_what_mecab_answers() -> None:
    words_of_path = segment("外国人参政権").split()
    shown = texts(lattice("外国人参政権"))
    assert set(words_of_path) < set(shown)


def test_merges_and_segmentations_follow_their_definitions() -> None:
    assert [(node.start, node.end) for node in merge_tree("東京大学院", MERGES)] == [(0, 2), (2, 5)]
    (best, pieces), *_ = segmentations("東京大", SCORES)
    assert (best, pieces) == (-11.0, ("東京", "大"))
    assert "大学院" in cells(merges_and_lattice("東京大学院", MERGES, SCORES | {"▁": -2.0}))


def test_spans_in_one_row_do_not_overlap() -> None:
    assert rows_without_overlap([(0, 2), (1, 3), (2, 4), (0, 1)]) == [0, 1, 0, 1]

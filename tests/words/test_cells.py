"""The texts for people in code cells, and their translations, which leave the code as it is."""

from pathlib import Path

import nbformat
import pytest
from course_lib.workspace.chapters import CHAPTERS

from course_authors.cells import same_code, texts, translated
from course_authors.notebooks import SETUP_TAG

CODE = '''\
found = {"before": 3, "after": data["some text"]}  # of two kinds
if kind == "two words" and path != "a/b.txt":
    print(f"{len(found):>3} of {kind!r}:", "雨", sep="; ")
axis.set(title="Loss", color="red")
rows = [f"{'name':<8} {x}", "text", "one two"]
run("batch.micro_size=3", "all rows " f"of {x}")
def half(x):
    """Return half of a number."""
    return f"{x} nats"'''


def cells(path: Path) -> list[str]:
    found = nbformat.read(path, as_version=4).cells
    return [
        each.source for each in found if each.cell_type == "code" and SETUP_TAG not in each.metadata.get("tags", [])
    ]


def test_texts_for_people_are_found() -> None:
    found = [each.text for each in texts(CODE)]
    assert found == [
        "before", "after", "some text", "of two kinds", "{len(found):>3} of {kind!r}:", "Loss", "text", "one two",
        "all rows ", "of {x}", "Return half of a number.",
        "{x} nats",
    ]  # fmt: skip
    assert all(CODE[each.start : each.end] == each.text for each in texts(CODE))


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("{kind!r}：{len(found):>5}", 'print(f"{kind!r}：{len(found):>5}")'),
        ("{kind!r}", 'print(f"{len(found)} of {kind!r}")'),
        ("{len(other)} of {kind!r}", 'print(f"{len(found)} of {kind!r}")'),
    ],
)
def test_a_translation_that_would_change_the_code_is_not_used(translation: str, expected: str) -> None:
    source = 'print(f"{len(found)} of {kind!r}")'
    assert translated(source, {"{len(found)} of {kind!r}": translation}) == expected


def test_code_is_compared_without_strings_and_comments() -> None:
    assert same_code('a = ["x", 1]  # one', 'a = ["雨", 1]')
    assert not same_code('a = ["x", 1]', 'a = ["x", 2]') and not same_code('f("a")', 'g("a")')
    assert same_code("%pip x", "%pip x") and not same_code("%pip x", "%pip y")


@pytest.mark.rehearse
@pytest.mark.parametrize("path", [path for each in CHAPTERS for path in each.paths], ids=lambda path: path.stem)
def test_translated_cells_have_the_same_code(path: Path) -> None:
    for source in cells(path):
        found = {each.text: f"訳{each.text}" for each in texts(source)}
        made = translated(source, found)
        assert same_code(made, source) and made.count("訳") == len(texts(source))

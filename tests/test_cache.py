"""Archives of finished products: what is packed, what is unpacked, what stays, and which archives are refused."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from zipfile import ZipFile

import pytest
from course_lib import cli, files
from course_lib.corpus import products as corpus
from course_lib.errors import CourseError
from course_lib.workspace import archive as cache
from course_lib.workspace import products as workspace
from course_lib.workspace.products import Product

WEIGHTS = bytes(range(256)) * 3000


class Course:
    """Three products: `a/first` from a file, `b/second` from it, `c/third` from `b/second`. Each has the file `weights`."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "source.txt"
        self.source.write_text("one")
        self.settings: dict[str, Any] = {"a/first": {"n": 1}, "b/second": {}, "c/third": {}}
        self.built: list[str] = []
        # what `a/first` depends on beside its inputs, as a training depends on its machine
        self.machine = "m"

    def product(self, name: str) -> Product:
        names = list(self.settings)
        source = self.product(names[names.index(name) - 1]) if name != "a/first" else self.source

        def build(folder: Path, inputs: list[Path], _settings: Any) -> dict[str, Any]:
            self.built.append(name)
            text = inputs[0].read_text() if inputs[0].is_file() else (inputs[0] / "in" / "text").read_text()
            (folder / "in").mkdir()
            (folder / "in" / "text").write_text(f"{text} {self.machine if name == 'a/first' else name}")
            (folder / "weights").write_bytes(WEIGHTS)
            return {}

        return Product(name, build, lambda: self.settings[name], (source,))

    def products(self, *names: str) -> list[Product]:
        return workspace.with_inputs(self.product(name) for name in names or self.settings)

    def build(self) -> None:
        for product in self.products():
            product.path()
        self.built.clear()

    def states(self) -> list[str]:
        return [product.state().kind for product in self.products()]


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course(tmp_path)


@pytest.fixture
def archive(course: Course, tmp_path: Path, elsewhere: Callable[[str], Path]) -> Path:
    """The packed products of another workspace than the test's, which is empty."""
    folder = workspace.root().parent
    elsewhere("teacher")
    course.build()
    cache.pack(course.products(), tmp_path / "cache.zip")
    elsewhere(str(folder))
    return tmp_path / "cache.zip"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def change(name: str) -> Path:
        monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path / name))
        return tmp_path / name

    return change


def everything() -> dict[str, bytes]:
    """The files of the workspace, without locks."""
    root = workspace.root()
    found = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def rewritten(archive: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """An archive with changed members."""
    with ZipFile(archive) as file:
        members = {name: file.read(name) for name in file.namelist()}
    change(members)
    with ZipFile(archive, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return archive


def refused(course: Course, archive: Path, *names: str) -> str:
    before = everything()
    with pytest.raises(CourseError) as error:
        cache.unpack(course.products(*names), archive)
    assert everything() == before and not list(workspace.root().rglob("*.tmp"))
    assert str(error.value).startswith(f"{archive}: ") and "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{archive}: ")


def test_round_trip(course: Course, archive: Path, elsewhere: Callable[[str], Path]) -> None:
    done, left = cache.unpack(course.products(), archive)
    assert list(done) == ["a/first", "b/second", "c/third"] and not left
    assert course.states() == ["fresh"] * 3 and sum(done.values()) > 3 * len(WEIGHTS)
    unpacked = everything()
    elsewhere("teacher")
    assert unpacked == everything() and len(unpacked) == 12
    course.product("c/third").path()
    assert course.built == []


def test_what_was_unpacked_is_not_read_at_each_look(
    course: Course, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.unpack(course.products(), archive)
    monkeypatch.setattr(files, "sha256", Mock(side_effect=AssertionError))
    assert course.states() == ["fresh"] * 3


def test_an_archive_of_an_earlier_version_is_left(course: Course, archive: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        for name in course.settings:
            manifest = json.loads(members[f"{name}/manifest.json"])
            manifest["settings"] = manifest.pop("identity")
            members[f"{name}/manifest.json"] = json.dumps(manifest).encode()

    done, left = cache.unpack(course.products(), rewritten(archive, change))
    assert done == {} and left["a/first"] == "built by an earlier version of the course"
    assert course.states() == ["missing"] * 3


def test_equal_products_give_equal_bytes(course: Course, archive: Path) -> None:
    assert cache.unpack(course.products(), archive)[0]
    for path in workspace.root().rglob("*"):
        path.touch()
    assert cache.pack(course.products(), archive.with_name("again.zip"))[1] == {}
    assert archive.with_name("again.zip").read_bytes() == archive.read_bytes()
    assert archive.stat().st_size < len(WEIGHTS) / 50


def test_only_what_is_finished_is_packed(course: Course, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no finished product"):
        cache.pack(course.products(), tmp_path / "cache.zip")
    assert not (tmp_path / "cache.zip").exists()
    course.build()
    course.settings["b/second"] = {"n": 2}
    done, left = cache.pack(course.products(), tmp_path / "cache.zip")
    assert (list(done), left) == (["a/first"], {"b/second": "stale", "c/third": "stale"})


def test_a_file_that_differs_from_its_manifest_is_not_packed(course: Course, archive: Path) -> None:
    before = archive.read_bytes()
    cache.unpack(course.products(), archive)
    path = workspace.root() / "a/first/weights"
    path.write_bytes(b"x" + WEIGHTS[1:])
    # the same size, and older than the manifest, so that the product still counts as fresh
    os.utime(path, (1, 1))
    with pytest.raises(CourseError, match=f"^{path}: was changed"):
        cache.pack(course.products(), archive)
    assert archive.read_bytes() == before


def test_only_what_is_needed_and_not_the_learners_own_is_unpacked(course: Course, archive: Path) -> None:
    course.product("a/first").path()
    before = everything()
    # it came out the same, so the products of the archive still follow from it
    done, left = cache.unpack(course.products("b/second"), archive)
    assert (list(done), left) == (["b/second"], {"a/first": "finished here"})
    assert before.items() <= everything().items()
    assert course.states() == ["fresh", "fresh", "missing"]
    course.settings["d/fourth"] = {}
    assert cache.unpack(course.products(), archive)[1]["d/fourth"] == "not in the archive"


def test_what_does_not_follow_from_the_learners_own_product_is_not_unpacked(course: Course, archive: Path) -> None:
    course.machine = "another"
    course.product("a/first").path()
    before = everything()
    assert cache.unpack(course.products(), archive)[0] == {} and everything() == before


def test_a_stale_product_is_replaced(course: Course, archive: Path) -> None:
    folder = course.product("a/first").path()
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"identity": {"n": 5}}))
    assert list(cache.unpack(course.products("a/first"), archive)[0]) == ["a/first"]
    assert course.product("a/first").state().kind == "fresh"


def test_a_truncated_archive_is_refused(course: Course, archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-50])
    assert "not a complete archive" in refused(course, archive)


def test_other_content_is_refused(course: Course, archive: Path) -> None:
    for change in (lambda members: members.update({"a/first/weights": WEIGHTS[:-1] + b"x"}),
                   lambda members: members.pop("a/first/weights")):  # fmt: skip
        assert "first differs from its manifest" in refused(course, rewritten(archive, change))


@pytest.mark.parametrize("name", ["in/../../../x", "/tmp/outside-of-it"])
def test_a_path_outside_the_product_is_never_written(course: Course, archive: Path, name: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["a/first/manifest.json"])
        manifest["outputs"][name] = manifest["outputs"]["weights"]
        members |= {"a/first/manifest.json": json.dumps(manifest).encode(), f"a/first/{name}": WEIGHTS}

    refused(course, rewritten(archive, change))
    assert not list(workspace.root().parent.rglob("x")) and not Path("/tmp/outside-of-it").exists()


def test_what_would_be_stale_with_this_version_is_not_unpacked(course: Course, archive: Path) -> None:
    course.settings["b/second"] = {"n": 2}
    done, left = cache.unpack(course.products(), archive)
    assert list(done) == ["a/first"]
    assert left == {"b/second": "settings changed", "c/third": "b/second is not fresh"}


def test_the_commands(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    elsewhere: Callable[[str], Path],
) -> None:
    """With chapter 1 from an archive, `course run 1` builds nothing."""
    elsewhere("teacher")
    for product in corpus.products():
        product.path()

    def course(*arguments: str) -> str:
        capsys.readouterr()
        assert cli._main([*arguments]) == 0
        return capsys.readouterr().out

    archive = str(tmp_path / "cache.zip")
    said = course("cache", "pack", "-o", archive)
    assert re.search(r"^left out: .*japanese/wikipedia \(missing\)", said)
    assert re.search(rf"\n{archive}: 3 products, [\d.]+ MB in [\d.]+ kB\n$", said)
    elsewhere("learner")
    said = course("run", "1", "--from-cache", archive)
    assert re.match(rf"{archive}: 3 products unpacked, [\d.]+ MB\n1 Corpus: up to date; ", said)
    assert "building" not in said
    said = course("run", "corpus", "--from-cache", archive)
    assert re.match(rf"{archive}: 0 products unpacked, .*\nnot unpacked: corpus/wikipedia \(finished here\), ", said)
    assert cli._main(["run", "1", "--from-cache", str(tmp_path / "none.zip")]) == 1
    assert capsys.readouterr().err == f"course: {tmp_path / 'none.zip'}: no such file\n"

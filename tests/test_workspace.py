"""Products: when they are fresh, what makes them stale, and that no failure, kill or race leaves half of one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from course_lib import cli, files, paths
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan import products as gptsan_products
from course_lib.prefix import products as prefix_products
from course_lib.settings import profiles, yaml_values
from course_lib.settings.config import STRICT, setting
from course_lib.workspace import chapters, cleaning
from course_lib.workspace import products as workspace
from course_lib.workspace.products import Product, State
from pydantic.dataclasses import dataclass

from tests import one_product
from tests.waiting import LIMIT

FRESH = State("fresh")


@dataclass(frozen=True, config=STRICT)
class Case:
    upper: bool = setting(True, "write in capitals")
    parts: tuple[str, ...] = setting((), "more lines")


class Course:
    """Three products: `a/first` from a file, `a/second` from it and another file, `b/third` from `a/second`."""

    def __init__(self, folder: Path) -> None:
        self.source, self.other = folder / "source.txt", folder / "other.txt"
        self.source.write_text("one")
        self.other.write_text("two")
        self.settings: dict[str, Any] = {"a/first": Case(), "a/second": {"n": 1, "list": [1]}, "b/third": {}}
        self.inputs: dict[str, tuple[Path | str, ...]] = {
            "a/first": (self.source,), "a/second": ("a/first", self.other), "b/third": ("a/second",),
        }  # fmt: skip
        self.code: dict[str, tuple[str, ...]] = {}
        self.built: list[str] = []
        self.resolved: list[str] = []
        self.failure: BaseException | None = None

    def product(self, name: str) -> Product:
        def inputs() -> list[Path | Product]:
            self.resolved.append(name)
            return [self.product(source) if isinstance(source, str) else source for source in self.inputs[name]]

        return Product(name, self.builder(name), lambda: self.settings[name], inputs, self.code.get(name, ()))

    def products(self) -> list[Product]:
        return [self.product(name) for name in self.inputs]

    def builder(self, name: str) -> Callable[[Path, list[Path], Any], dict[str, Any]]:
        def build(folder: Path, inputs: list[Path], _settings: Any) -> dict[str, Any]:
            self.built.append(name)
            assert list(folder.iterdir()) == []
            text = "".join(
                path.read_text() if path.is_file() else (path / "in" / "text").read_text() for path in inputs
            )
            (folder / "in").mkdir()
            (folder / "in" / "text").write_text(text.upper())
            if self.failure:
                raise self.failure
            return {"characters": len(text)}

        return build

    def make(self, name: str = "b/third") -> list[str]:
        """What was built to have `name`."""
        self.built.clear()
        self.product(name).path()
        return list(self.built)

    def state(self, name: str) -> State:
        return self.product(name).state()


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course(tmp_path)


def text(name: str) -> str:
    return (workspace.root() / name / "in" / "text").read_text()


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def leftovers() -> list[Path]:
    return list(workspace.root().rglob("*.tmp"))


def test_building_makes_what_is_missing_once(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert [course.state(name) for name in course.inputs] == [State("missing")] * 3
    folder = course.product("b/third").path()
    assert folder == workspace.root() / "b" / "third"
    assert course.built == ["a/first", "a/second", "b/third"]
    assert capsys.readouterr().out.splitlines() == [f"building {name} (missing)" for name in course.built]
    assert text("b/third") == "ONETWO"
    assert [course.state(name) for name in course.inputs] == [FRESH] * 3
    assert course.make() == []
    assert capsys.readouterr().out == ""
    assert leftovers() == []


def test_the_manifest_says_where_a_product_comes_from(course: Course) -> None:
    course.make()
    found = course.product("a/second").manifest()
    assert found is not None
    assert found["product"] == "a/second"
    assert found["profile"] == "tiny"
    assert found["settings"] == {"n": 1, "list": [1]}
    assert found["counts"] == {"characters": 6}
    assert found["inputs"]["other.txt"]["sha256"] == "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
    assert found["outputs"]["in/text"]["bytes"] == 6
    assert found["versions"].keys() >= {"course_lib", "numpy"}
    assert abs(time.time() - time.mktime(time.strptime(found["built"][:19], "%Y-%m-%dT%H:%M:%S"))) < 60
    assert str(course.source.parent) not in json.dumps(found)


def test_changed_settings(course: Course) -> None:
    course.make()
    course.settings["a/first"] = Case(upper=False)
    assert course.state("a/first") == State("stale", "settings changed")
    assert course.state("b/third") == State("stale", "a/second is not fresh")
    assert course.make() == ["a/first"]  # it came out the same, so the others still follow from it
    course.settings["a/first"] = Case(upper=False, parts=("x",))
    assert course.make("a/first") == ["a/first"]
    assert [course.state(name) for name in course.inputs] == [FRESH] * 3


def test_changed_input_bytes(course: Course) -> None:
    course.make()
    course.source.write_text("uno")  # the same length
    os.utime(course.source, (1, 1))
    assert course.state("a/first") == State("stale", "source.txt changed")
    assert course.state("a/second") == State("stale", "a/first is not fresh")
    assert course.make() == ["a/first", "a/second", "b/third"]
    assert text("b/third") == "UNOTWO"


def test_an_input_touched_but_the_same_changes_nothing(course: Course) -> None:
    course.make()
    os.utime(course.source, (1, 1))
    assert course.state("a/first") == FRESH
    assert course.make() == []


def test_only_what_depends_on_a_change_is_built(course: Course) -> None:
    course.make()
    course.other.write_text("zwei")
    assert course.state("a/first") == FRESH
    assert course.state("a/second") == State("stale", "other.txt changed")
    assert course.make("a/first") == []
    assert course.make() == ["a/second", "b/third"]


def test_an_upstream_built_alone_makes_the_downstream_stale(course: Course) -> None:
    course.make()
    course.source.write_text("eins")
    assert course.make("a/first") == ["a/first"]
    assert course.state("a/second") == State("stale", "a/first changed")
    assert course.state("b/third") == State("stale", "a/second is not fresh")


@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_a_damaged_output(course: Course, damage: str) -> None:
    course.make()
    output = workspace.root() / "a" / "first" / "in" / "text"
    if damage == "removed":
        output.unlink()
    else:
        os.truncate(output, 1)
    assert course.state("a/first") == State("stale", "in/text was changed or removed")
    assert course.make() == ["a/first"]
    assert text("a/first") == "ONE"


def test_changed_code(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.make()
    digests = {"exercises": "1"}
    monkeypatch.setattr(workspace, "_digest", digests.__getitem__)
    course.code["a/first"] = ("exercises",)
    assert course.state("a/first") == State("stale", "the code of exercises changed")
    assert course.make() == ["a/first"]
    assert course.make() == []
    digests["exercises"] = "2"
    assert course.state("a/first") == State("stale", "the code of exercises changed")
    assert course.make() == ["a/first"]


def test_the_code_of_a_package_is_all_but_its_figures_and_verbs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "__file__", str(tmp_path / "workspace/products.py"))
    (tmp_path / "part").mkdir()
    digests = []
    for name, content in [
        ("a.py", "1"),
        ("b.py", "1"),
        ("b.py", "2"),
        ("cli.py", "1"),
        ("figures.py", "1"),
        ("notes.txt", "1"),
    ]:
        (tmp_path / "part" / name).write_text(content)
        workspace._digest.cache_clear()
        digests.append(workspace._digest("part"))
    workspace._digest.cache_clear()
    assert len(set(digests[:3])) == 3
    assert set(digests[2:]) == {digests[2]}


def test_the_steps_of_the_course_name_packages_that_exist() -> None:
    packages = {package for product in chapters.products() for package in product.code}
    assert packages >= {"corpus", "japanese", "subword"}
    places = [Path(workspace.__file__).parents[1] / package for package in packages]
    assert all(place.is_file() or (place / "__init__.py").is_file() for place in places)


def test_other_inputs(course: Course) -> None:
    course.make()
    course.inputs["a/second"] = ("a/first",)
    assert course.state("a/second") == State("stale", "made from other inputs")
    course.inputs["a/second"] = ("a/first", course.other, course.source)
    assert course.state("a/second") == State("stale", "made from other inputs")
    assert course.make() == ["a/second", "b/third"]


def test_a_missing_input_file_is_named_and_nothing_is_written(course: Course) -> None:
    course.source.unlink()
    with pytest.raises(CourseError, match=r"source\.txt: no such file$"):
        course.product("b/third").path()
    assert not workspace.root().exists()


def test_a_vanished_input_makes_stale_but_leaves_the_product(course: Course) -> None:
    course.make()
    course.source.unlink()
    assert course.state("a/first") == State("stale", "source.txt changed")
    with pytest.raises(CourseError, match="no such file"):
        course.product("a/first").path()
    assert text("a/first") == "ONE"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b"3", b"{}", b'{"settings": {}}', b'{"settings": {}, "inputs": {}}'],
)
def test_a_corrupted_manifest_makes_stale(course: Course, content: bytes) -> None:
    course.make()
    (workspace.root() / "a" / "first" / "manifest.json").write_bytes(content)
    assert course.product("a/first").manifest() is None
    assert course.state("a/first") == State("stale", "manifest.json is damaged")
    assert course.make() == ["a/first"]
    assert course.state("b/third") == FRESH


def test_a_lost_manifest_means_missing(course: Course) -> None:
    course.make()
    (workspace.root() / "a" / "first" / "manifest.json").unlink()
    assert course.state("a/first") == State("missing")
    assert course.make() == ["a/first"]


def test_a_file_in_the_place_of_a_product_is_not_overwritten(course: Course) -> None:
    place = workspace.root() / "a" / "first"
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    assert course.state("a/first") == State("missing")
    with pytest.raises(CourseError, match="first: is a file, expected a name for a folder"):
        course.product("a/first").path()
    assert place.read_text() == "mine"


@pytest.mark.parametrize("failure", [CourseError("bad line 3"), RuntimeError("bug"), KeyboardInterrupt()])
def test_a_failing_build_leaves_the_earlier_product(course: Course, failure: BaseException) -> None:
    course.make()
    before = everything(workspace.root() / "a" / "first")
    course.source.write_text("uno dos")
    course.failure = failure
    with pytest.raises(type(failure)):
        course.product("b/third").path()
    assert everything(workspace.root() / "a" / "first") == before
    assert leftovers() == []
    course.failure = None
    assert course.make() == ["a/first", "a/second", "b/third"]


def test_a_failing_first_build_leaves_nothing(course: Course) -> None:
    course.failure = CourseError("bad line 3")
    with pytest.raises(CourseError, match="bad line 3"):
        course.product("a/first").path()
    assert not (workspace.root() / "a" / "first").exists()
    assert leftovers() == []


def start(log: Path, gate: Path, version: str = "2") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.one_product", str(log), str(gate), version]
    return subprocess.Popen(command, cwd=paths.REPOSITORY, stdout=subprocess.PIPE, text=True)


def lines_until(process: "subprocess.Popen[str]", wanted: str) -> list[str]:
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line.strip())
        if seen[-1] == wanted:
            return seen
    raise AssertionError(f"the process ended without {wanted!r}: {seen}")


@pytest.mark.parametrize("earlier", [False, True])
def test_a_killed_build_leaves_no_half_product(tmp_path: Path, earlier: bool) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    product = one_product.slow_product(log, gate, "1")
    folder = workspace.root() / one_product.NAME
    if earlier:
        gate.touch()
        product.path()
        gate.unlink()
    before = everything(folder)
    with start(log, gate) as process:
        lines_until(process, "half")
        process.kill()
    assert process.returncode == -9
    assert len(leftovers()) == 1
    assert everything(folder) == before
    product = one_product.slow_product(log, gate, "2")
    assert product.state() == (State("stale", "settings changed") if earlier else State("missing"))
    log.unlink()
    gate.touch()
    assert product.path() == folder
    assert everything(folder).keys() == {"half", "whole", "manifest.json"}
    assert leftovers() == []
    assert log.read_text() == "built\n"
    assert product.state() == FRESH


def test_a_killed_build_that_writes_a_folder_of_its_own(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    with start(log, gate, "nested") as process:
        lines_until(process, "half")
        process.kill()
    assert {path.name.count("..") for path in leftovers()} == {0, 1}
    gate.touch()
    one_product.slow_product(log, gate, "1").path()
    assert leftovers() == []


def test_two_processes_build_a_product_once(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    with start(log, gate) as first:
        lines_until(first, "half")
        with start(log, gate) as second:
            lines_until(second, "asking")
            time.sleep(0.3)  # enough to reach the lock, and to build if there were none
            gate.touch()
            place = str(workspace.root() / one_product.NAME)
            assert first.communicate(timeout=LIMIT)[0].split() == [place]
            assert second.communicate(timeout=LIMIT)[0].split() == [place]
    assert (first.returncode, second.returncode) == (0, 0)
    assert log.read_text() == "built\n"


def calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """The first arguments with which a function of a module is called from now on."""
    seen: list[Any] = []
    real = getattr(module, name)

    def noting(*arguments: Any) -> Any:
        seen.append(arguments[0] if arguments else None)
        return real(*arguments)

    monkeypatch.setattr(module, name, noting)
    return seen


def test_a_look_at_all_products_examines_each_once(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are made from one: here ten layers of two products each, every one made from both of the layer below."""
    below: tuple[Path | str, ...] = (course.source,)
    for layer in range(10):
        names = [f"{layer}/{side}" for side in "ab"]
        course.inputs |= dict.fromkeys(names, below)
        course.settings |= {name: {} for name in names}
        below = tuple(names)
    course.product("9/a").path()
    built = len(course.built)
    os.utime(course.source)  # the same bytes at another time: they are read again
    course.resolved.clear()
    read, hashed = calls(monkeypatch, Product, "manifest"), calls(monkeypatch, files, "sha256")
    found = workspace.states(course.products())
    assert [name for name, state in found.items() if state == FRESH] == [f"{n // 2}/{'ab'[n % 2]}" for n in range(19)]
    assert sorted(course.resolved) == sorted(course.inputs) and hashed == [course.source]
    assert len(read) <= 2 * len(course.inputs)  # its own, and as an input of others
    course.resolved.clear()
    read.clear()
    course.product("9/a").path()
    assert len(course.built) == built == 19
    assert len(course.resolved) == built and len(read) <= 2 * len(course.inputs) ** 2


def test_the_real_course_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    listed, loaded = calls(monkeypatch, chapters, "products"), calls(monkeypatch, yaml_values, "read")
    assert cli._main(["status"]) == 0
    products = len(capsys.readouterr().out.splitlines()) - 2
    assert len(listed) == 1 and products > 20 and len(loaded) <= products


def test_clean_removes_what_the_course_wrote_and_nothing_else(course: Course) -> None:
    course.make()
    first, run = workspace.root() / "a/first", workspace.root() / "a/runs/0123456789ab"
    run.mkdir(parents=True)
    for path in (
        run / "checkpoint",
        run.parent / "notes",
        first / "mine",
        first / "in/mine",
        workspace.root() / "a/own",
    ):
        path.write_text("x")
    # an output that the user changed to another text of the same size
    (workspace.root() / "a/second/in/text").write_text("twoone")
    before = everything(workspace.root())
    found = cleaning.removal(["a", "never"])
    assert everything(workspace.root()) == before
    assert found.parts.keys() == {"a/first", "a/second"} and found.size > 1000 and found.seconds >= 0
    found.remove()
    left = {name for name in everything(workspace.root()) if name.startswith("a/")}
    assert left == {
        "a/first/mine",
        "a/first/in/mine",
        "a/second/in/text",
        "a/own",
        "a/runs/notes",
        "a/runs/0123456789ab/checkpoint",
    }
    assert {path.name for path in found.kept} == {"mine", "text", "own", "runs"}
    cleaning.removal(["a"], runs=True).remove()
    assert not run.exists() and (run.parent / "notes").exists()
    assert [course.state(name).kind for name in course.inputs] == ["missing", "missing", "stale"]


def test_clean_asks_on_a_terminal_and_needs_yes_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace.root() / "corpus/x"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"settings": {}, "inputs": {}, "outputs": {}, "seconds": 7200}')
    assert cli._main(["clean", "1"]) == 2 and "--yes" in capsys.readouterr().err
    assert cli._main(["clean", "1", "--dry-run"]) == 0 and "2.0 h" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert cli._main(["clean", "1"]) == 0 and folder.exists()
    monkeypatch.setattr("typer.confirm", lambda question: True)
    assert cli._main(["clean", "1"]) == 0 and not folder.exists()


def test_each_profile_has_products_of_its_own(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.make("a/first")
    tiny = workspace.root()
    monkeypatch.setenv("COURSE_PROFILE", "xl")
    assert (tiny.name, workspace.root()) == ("tiny", tiny.with_name("xl"))
    assert course.state("a/first") == State("missing")


def test_the_workspace_stands_in_the_checkout_unless_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_WORKSPACE", "here")
    assert workspace.root() == tmp_path / "here" / profiles.name()
    monkeypatch.delenv("COURSE_WORKSPACE")
    assert workspace.root() == paths.REPOSITORY / "workspace" / profiles.name()
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path / "site-packages")
    assert workspace.root() == tmp_path / "workspace" / profiles.name()


def test_an_unknown_task_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"^task: the profile has no task 'nope'; allowed: smile, plain$"):
        prefix_products.task("nope")


def test_a_product_that_the_profile_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_PROFILE", "xl")
    with pytest.raises(UsageError, match=r"^product 'gptsan/corpus' does not exist in profile xl, whose base is ready"):
        gptsan_products.CORPUS.path()
    assert "gptsan/corpus" not in {product.name for product in chapters.products()}


def test_bundled_data_is_found_or_refused() -> None:
    assert workspace.data("jawiki-sample.xml.bz2").is_file()
    with pytest.raises(
        UsageError, match=r"^bundled data 'nope\.txt' does not exist; allowed: .*jawiki-sample\.xml\.bz2"
    ):
        workspace.data("nope.txt")

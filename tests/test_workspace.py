"""Products: when they are fresh, what makes them stale, and that no failure, kill or race leaves half of one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from course_lib import cli, files, paths
from course_lib.corpus import products as corpus_products
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan import products as gptsan_products
from course_lib.japanese import products as japanese_products
from course_lib.prefix import products as prefix_products
from course_lib.pretrain import products as pretrain_products
from course_lib.settings import config, profiles
from course_lib.settings.config import STRICT, setting
from course_lib.subword import products as subword_products
from course_lib.training.settings import RunConfig
from course_lib.workspace import chapters, cleaning, manifests
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

        def build(folder: Path, inputs: list[Path], _settings: Any) -> dict[str, Any]:
            self.built.append(name)
            assert list(folder.iterdir()) == []
            text = "".join((path if path.is_file() else path / "in/text").read_text() for path in inputs)
            (folder / "in").mkdir()
            (folder / "in" / "text").write_text(text.upper())
            if self.failure:
                raise self.failure
            return {"characters": len(text)}

        return Product(name, build, lambda: self.settings[name], inputs, lambda: self.code.get(name, ()))

    def products(self) -> list[Product]:
        return [self.product(name) for name in self.inputs]

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
    shown = (path for path in folder.rglob("*") if path.is_file() and path.name != files.FILE_LIST)
    return {str(path.relative_to(folder)): path.read_bytes() for path in shown}


def leftovers() -> list[Path]:
    return list(workspace.root().rglob("*.tmp"))


def test_building_makes_what_is_missing_once(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert [course.state(name) for name in course.inputs] == [State("missing")] * 3
    assert course.product("b/third").path() == workspace.root() / "b" / "third"
    assert course.built == ["a/first", "a/second", "b/third"]
    assert capsys.readouterr().out.splitlines() == [f"building {name} (missing)" for name in course.built]
    assert text("b/third") == "ONETWO"
    assert [course.state(name) for name in course.inputs] == [FRESH] * 3
    assert course.make() == [] and leftovers() == []


def test_the_manifest_says_where_a_product_comes_from(course: Course) -> None:
    course.make()
    found = course.product("a/second").manifest()
    assert found is not None
    assert (found["product"], found["profile"], found["counts"]) == ("a/second", "tiny", {"characters": 6})
    assert found["identity"] == {"n": 1, "list": [1]} and found["outputs"]["in/text"]["bytes"] == 6
    assert found["inputs"]["other.txt"]["sha256"] == "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
    assert found["versions"].keys() >= {"course_lib", "numpy"}
    assert str(course.source.parent) not in json.dumps(found)


def other_bytes(course: Course) -> None:
    course.source.write_text("uno")  # the same length
    os.utime(course.source, (1, 1))


@pytest.mark.parametrize(
    ("change", "changed", "reason"),
    [
        (lambda course: course.settings.update({"a/first": Case(upper=False)}), False, "settings"),
        (other_bytes, True, "source.txt"),
        (lambda course: course.inputs.update({"a/first": (course.source, course.other)}), True, "other inputs"),
        (lambda course: course.code.update({"a/first": ("exercises",)}), False, "exercises"),
        (lambda _: os.truncate(workspace.root() / "a/first/in/text", 1), False, "in/text"),
        (lambda _: (workspace.root() / "a/first/manifest.json").write_text("{}"), False, "manifest.json"),
    ],
)
def test_a_change_makes_a_product_and_what_follows_stale(
    course: Course, change: Callable[[Course], Any], changed: bool, reason: str
) -> None:
    course.make()
    change(course)
    state = course.state("a/first")
    assert state.kind == "stale" and reason in state.reason
    assert course.state("b/third") == State("stale", "a/second is not fresh")
    built = course.make()
    # What comes out the same makes nothing else stale.
    assert built == (["a/first", "a/second", "b/third"] if changed else ["a/first"])
    assert [course.state(name) for name in course.inputs] == [FRESH] * 3


def test_an_upstream_built_alone_makes_the_downstream_stale(course: Course) -> None:
    course.make()
    course.source.write_text("eins")
    assert course.make("a/first") == ["a/first"]
    assert course.state("a/second") == State("stale", "a/first changed")


def test_an_edit_of_an_output_of_equal_size_is_seen(course: Course) -> None:
    course.make()
    (workspace.root() / "a/second/in/text").write_text("TWOONE")
    assert course.state("a/second") == State("stale", "in/text was changed or removed")
    assert course.state("b/third") == State("stale", "a/second is not fresh")
    assert course.make() == ["a/second"] and text("a/second") == "ONETWO"


def test_outputs_are_read_only_if_they_are_newer_than_their_manifest(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.make()
    for path in workspace.root().rglob("text"):
        os.utime(path, (1, 1))
    with monkeypatch.context() as patched:
        patched.setattr(files, "sha256", Mock(side_effect=AssertionError))
        assert [course.state(name) for name in course.inputs] == [FRESH] * 3
    os.utime(workspace.root() / "a/first/in/text")
    assert course.state("a/first") == FRESH


def test_an_input_that_changes_during_the_build_makes_the_product_stale(course: Course) -> None:
    """It is not recorded as what the build has read."""
    product = course.product("a/first")

    def build(folder: Path, inputs: list[Path], settings: Any) -> dict[str, Any]:
        counts = product.build(folder, inputs, settings)
        course.source.write_text("another")
        return counts

    Product("a/first", build, product.settings, product.inputs).path()
    assert text("a/first") == "ONE" and course.state("a/first") == State("stale", "source.txt changed")
    assert course.make("a/first") == ["a/first"] and text("a/first") == "ANOTHER"


def test_inputs_of_the_same_name_are_told_apart(course: Course, tmp_path: Path) -> None:
    """Such as texts of the user's own in two folders."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more/source.txt").write_text("three")
    course.inputs["a/first"] = (course.source, tmp_path / "more/source.txt")
    assert course.make("a/first") == ["a/first"] and course.make("a/first") == []
    (tmp_path / "more/source.txt").write_text("four")
    assert course.state("a/first") == State("stale", "source.txt (2) changed")


def test_a_setting_that_does_not_fix_the_content_may_change(course: Course) -> None:
    def product(**settings: int) -> Product:
        made = course.product("a/first")
        return Product("a/first", made.build, settings, made.inputs, identity=lambda chosen: {"n": chosen["n"]})

    product(n=1, logging=10).path()
    assert product(n=1, logging=20).state() == FRESH
    assert product(n=2, logging=10).state() == State("stale", "settings changed")
    assert product(n=1, logging=20).run_name() == product(n=1, logging=10).run_name() != product(n=2).run_name()


def test_a_run_is_named_after_what_the_product_is_made_of(course: Course) -> None:
    """So that a run is never refused because it began with other inputs."""
    course.make()
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: course.settings.update({"a/second": {"n": 2}}),
        lambda: course.other.write_text("other"),
        lambda: course.code.update({"a/second": ("exercises",)}),
        lambda: course.source.write_text("uno"),
    ]
    names = []
    for change in changes:
        change()
        course.make("a/first")
        names.append(course.product("a/second").run_name())
    assert len(set(names)) == len(changes) and all(cleaning.RUN.fullmatch(name) for name in names)
    os.utime(course.other, (1, 1))
    assert course.product("a/second").run_name() == names[-1]


def test_a_product_that_trains_says_so(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    product = course.product("a/first")
    trained = Product("a/first", product.build, {}, product.inputs, trains=lambda inputs, _: f"from {inputs[0].name}")
    trained.path()
    assert capsys.readouterr().out == "training a/first (missing): from source.txt\n"


def test_what_a_training_notes_makes_nothing_else_stale(course: Course) -> None:
    """Its times differ, also if the weights are the same."""

    def product(seconds: int) -> Product:
        def build(folder: Path, *_: Any) -> dict[str, Any]:
            (folder / "in").mkdir()
            (folder / "in/text").write_text("weights")
            (folder / "log.jsonl").write_text(f'{{"seconds": {seconds}}}')
            return {}

        return Product("a/model", build, {"seconds": seconds})

    def below(seconds: int) -> Product:
        return Product("b/below", lambda folder, *_: {}, inputs=(product(seconds),))

    below(1).path()
    product(2).path()
    assert below(2).state() == FRESH


# The part of a manifest of 30 November 2026 that says what the product is made of.
EARLIER = {
    "settings": {"n": 1, "list": [1]},
    "code": {"corpus": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
    "inputs": {"other.txt": {"bytes": 3, "sha256": "0", "mtime_ns": 1}, "a/first": "0"},
}


def test_a_product_of_an_earlier_version_is_stale(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.make()
    folder = workspace.root() / "a/second"
    built = json.loads((folder / "manifest.json").read_text())
    del built["identity"]
    (folder / "manifest.json").write_text(json.dumps(built | EARLIER))
    assert course.state("a/second") == State("stale", "built by an earlier version of the course")
    assert course.make() == ["a/second"]
    folder = workspace.root() / "corpus/wikipedia"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(EARLIER | {"outputs": {}}))
    assert cli._main(["status"]) == 0
    assert "built by an earlier version of the course\n" in capsys.readouterr().out
    assert cli._main(["clean", "1", "--yes"]) == 0 and not folder.exists()


# Settings that a product which is trained may have changed, and those that train it again.
MAY_CHANGE = (
    "engine.logging_freq=3", "engine.eval_freq=7", "engine.save_steps=9", "engine.keep_checkpoints=1",
    "engine.tracking=[]", "engine.output_dir=elsewhere", "engine.compile=true", "launch.device=cpu", "launch.ranks=16",
    "launch.master_port=4", "launch.slurm.nodes=2", "batch.micro_size=1", "model.recompute=full",
    "optimizer.fused=false", "zero.stage=1", "zero.reduce_bucket_size=5",
)  # fmt: skip
TRAINS_AGAIN = (
    "engine.seed=5", "engine.max_steps=77", "batch.global_size=32", "optimizer.lr.max=0.9", "optimizer.beta2=0.5",
    "precision.dtype=fp16",
)  # fmt: skip


def identity(product: Product, *overrides: str) -> dict[str, Any]:
    settings = product.resolve()[0]
    return product.identity(config.build(type(settings), config.to_dict(settings), overrides))


@pytest.mark.parametrize("profile", profiles.BUNDLED)
def test_only_what_fixes_the_weights_trains_a_model_again(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_PROFILE", profile)
    trained = [product for product in chapters.products() if isinstance(product.resolve()[0], RunConfig)]
    assert {"pretrain/gpt2", "gptsan/tuned", "prefix/title"} <= {product.name for product in trained}
    for product in trained:
        lengths = [f"{key}=null" for key in product.resolve()[0].lengths()]
        # Muon needs one rank.
        usual = (
            *lengths,
            "optimizer.name=adamw",
            "engine.max_steps=50",
            "batch.global_size=16",
            "precision.dtype=bf16",
        )
        for change in MAY_CHANGE:
            assert identity(product, *usual, change) == identity(product, *usual), (product.name, change)
        for change in TRAINS_AGAIN:
            assert identity(product, *usual, change) != identity(product, *usual), (product.name, change)
        # Without a size, the batch is that of the ranks.
        of_ranks = (*usual, "batch.global_size=null", "batch.local_size=null", "batch.micro_size=8", "launch.ranks=2")
        assert identity(product, *of_ranks) == identity(product, *usual)
        assert identity(product, *of_ranks, "launch.ranks=3") != identity(product, *usual)
        of_gpus = (*of_ranks, "launch.ranks=null")
        assert identity(product, *of_gpus) != identity(product, *of_gpus, "batch.micro_size=4")


@pytest.mark.parametrize("change", ["task_name=other", "model.warm_start_steps=1", "data.dev_size=3", "model.length=2"])
def test_what_else_fixes_a_prefix(change: str) -> None:
    product = prefix_products.task("title")
    assert identity(product, change) != identity(product)


def test_a_missing_input_file_is_named_and_nothing_is_written(course: Course) -> None:
    course.source.unlink()
    with pytest.raises(CourseError, match=r"source\.txt"):
        course.product("b/third").path()
    assert not workspace.root().exists()


@pytest.mark.parametrize("failure", [CourseError("bad line 3"), KeyboardInterrupt()])
def test_a_failing_build_leaves_the_earlier_product_or_nothing(course: Course, failure: BaseException) -> None:
    course.make("a/first")
    before = everything(workspace.root() / "a" / "first")
    course.source.write_text("uno dos")
    course.failure = failure
    with pytest.raises(type(failure)):
        course.product("a/second").path()
    assert everything(workspace.root() / "a" / "first") == before
    assert not (workspace.root() / "a/second").exists() and leftovers() == []
    course.failure = None
    assert course.make() == ["a/first", "a/second", "b/third"]


def start(log: Path, gate: Path, version: str = "2") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.one_product", str(log), str(gate), version]
    return subprocess.Popen(command, cwd=paths.REPOSITORY, stdout=subprocess.PIPE, text=True)


def read_until(process: "subprocess.Popen[str]", wanted: str) -> None:
    assert process.stdout and any(line.strip() == wanted for line in process.stdout), wanted


@pytest.mark.parametrize("version", ["2", "nested"])
def test_a_killed_build_leaves_no_half_product(tmp_path: Path, version: str) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    gate.touch()
    folder = one_product.slow_product(log, gate, "1").path()
    gate.unlink()
    before = everything(folder)
    with start(log, gate, version) as process:
        read_until(process, "half")
        process.kill()
    assert process.returncode == -9 and leftovers() and everything(folder) == before
    product = one_product.slow_product(log, gate, "2")
    assert product.state() == State("stale", "settings changed")
    gate.touch()
    product.path()
    assert everything(folder).keys() == {"half", "whole", "manifest.json"} and leftovers() == []


def test_two_processes_build_a_product_once(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    with start(log, gate) as first:
        read_until(first, "half")
        with start(log, gate) as second:
            read_until(second, "asking")
            time.sleep(0.3)  # enough to reach the lock, and to build if there were none
            gate.touch()
            folder = str(workspace.root() / one_product.NAME)
            assert first.communicate(timeout=LIMIT)[0].split() == [folder]
            assert second.communicate(timeout=LIMIT)[0].split() == [folder]
    assert (first.returncode, second.returncode) == (0, 0)
    assert log.read_text() == "built\n"


def test_clean_during_a_build_leaves_it_alone(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    gate.touch()
    folder = one_product.slow_product(log, gate, "1").path()
    gate.unlink()
    with start(log, gate) as process:
        read_until(process, "half")
        found = cleaning.removal(["part"], runs=True)
        assert folder in found.used and found.paths == []
        found.remove()
        gate.touch()
        assert process.communicate(timeout=LIMIT)[0].split() == [str(folder)]
    assert process.returncode == 0 and one_product.slow_product(log, gate, "2").state() == FRESH


def test_a_look_at_all_products_examines_each_once(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are made from one: here ten layers of two products, each made from both of the layer below."""
    below: tuple[Path | str, ...] = (course.source,)
    for layer in range(10):
        names = [f"{layer}/{side}" for side in "ab"]
        course.inputs |= dict.fromkeys(names, below)
        course.settings |= {name: {} for name in names}
        below = tuple(names)
    course.product("9/a").path()
    os.utime(course.source)  # the same bytes at another time: they are read again
    course.resolved.clear()
    read, hashed = Mock(wraps=Product.manifest), Mock(wraps=files.sha256)
    monkeypatch.setattr(Product, "manifest", lambda product: read(product))
    monkeypatch.setattr(files, "sha256", hashed)
    assert sum(state == FRESH for state in workspace.states(course.products()).values()) == 19
    assert sorted(course.resolved) == sorted(course.inputs)
    hashed.assert_called_once_with(course.source)
    assert read.call_count <= 2 * len(course.inputs)  # its own, and as an input of others
    course.resolved.clear()
    course.product("9/a").path()
    assert len(course.resolved) == len(course.built) == 19


def test_clean_removes_what_the_course_wrote_and_nothing_else(course: Course) -> None:
    course.make()
    first, run = workspace.root() / "a/first", workspace.root() / "a/runs/0123456789ab"
    run.mkdir(parents=True)
    users = (run / "checkpoint", run.parent / "notes", first / "mine", first / "in/mine", workspace.root() / "a/own")
    for path in users:
        path.write_text("x")
    # an output that the user changed to another text of the same size
    (workspace.root() / "a/second/in/text").write_text("twoone")
    before = everything(workspace.root())
    found = cleaning.removal(["a", "never"])
    assert everything(workspace.root()) == before
    assert found.parts.keys() == {"a/first", "a/second"}
    found.remove()
    left = {str(workspace.root() / name) for name in everything(workspace.root()) if name.startswith("a/")}
    assert left == {*map(str, users), str(workspace.root() / "a/second/in/text")}
    assert {path.name for path in found.stays} == {"mine", "text", "own", "runs"}
    cleaning.removal(["a"], runs=True).remove()
    assert not run.exists() and (run.parent / "notes").exists()
    assert [course.state(name).kind for name in course.inputs] == ["missing", "missing", "stale"]


def test_a_rebuilt_product_keeps_the_users_files(course: Course) -> None:
    course.make("a/first")
    for name in ("mine", "in/mine", "notes/mine"):
        (workspace.root() / "a/first" / name).parent.mkdir(exist_ok=True)
        (workspace.root() / "a/first" / name).write_text("x")
    course.source.write_text("uno dos")
    course.make("a/first")
    expected = {"mine", "in/mine", "notes/mine", "in/text", "manifest.json"}
    assert everything(workspace.root() / "a/first").keys() == expected
    assert text("a/first") == "UNO DOS" and course.state("a/first") == FRESH


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


def test_the_workspace_stands_in_the_checkout_unless_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_WORKSPACE", "here")
    assert workspace.root() == tmp_path / "here" / profiles.current_name()
    monkeypatch.delenv("COURSE_WORKSPACE")
    assert workspace.root() == paths.REPOSITORY / "workspace" / profiles.current_name()
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path / "site-packages")
    assert workspace.root() == tmp_path / "workspace" / profiles.current_name()


def test_a_product_that_the_profile_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_PROFILE", "xl")
    with pytest.raises(UsageError, match="gptsan/corpus"):
        gptsan_products.CORPUS.path()
    assert "gptsan/corpus" not in {product.name for product in chapters.products()}


@pytest.mark.parametrize("profile", ["tiny", "colab", "single-gpu"])
def test_models_learn_the_small_world_where_the_profile_has_it(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_PROFILE", profile)
    world = profile == "tiny"

    def inputs(product: Product) -> set[str]:
        return {source.name for source in product.resolve()[1] if isinstance(source, Product)}

    texts = {"world"} if world else {"wikipedia", "webtext"}
    tokenizer = "subword/bpe-world" if world else "subword/bpe"
    of_world = {"corpus/world", "japanese/world", "subword/bpe-world"}
    assert of_world & {product.name for product in chapters.products()} == (of_world if world else set())
    assert inputs(pretrain_products.TOKENS) == {tokenizer, *(f"japanese/{name}" for name in texts)}
    assert inputs(pretrain_products.GPT2) == {tokenizer, "pretrain/tokens"}
    if profile != "single-gpu":
        assert inputs(gptsan_products.CORPUS) == {"gptsan/vocabulary", *(f"corpus/{name}" for name in texts)}
    base = "prefix/base" if profile == "single-gpu" else "pretrain/gpt2"
    for task in prefix_products.tasks():
        assert inputs(task) == {base, "prefix/pairs"}
    if not world:
        for product in (corpus_products.WORLD, japanese_products.WORLD, subword_products.BPE_WORLD):
            with pytest.raises(UsageError, match=f"^product 'corpus/world' does not exist in profile {profile}, .*$"):
                product.path()


def test_a_profile_chooses_a_tokenizer_of_unsegmented_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text("extends: tiny.yaml\nsubword:\n  models: {tokenizer: unigram-words}\n")
    monkeypatch.setenv("COURSE_PROFILE", str(tmp_path / "own.yaml"))

    def inputs(product: Product) -> set[str]:
        return {source.name for source in product.resolve()[1] if isinstance(source, Product)}

    assert "subword/unigram-words" in {product.name for product in chapters.products()}
    assert inputs(subword_products.UNIGRAM_WORDS) == {"japanese/world"}
    assert inputs(pretrain_products.TOKENS) == {"corpus/world", "subword/unigram-words"}
    assert inputs(pretrain_products.GPT2) == {"pretrain/tokens", "subword/unigram-words"}


def test_a_gpt2_learns_documents_that_need_no_cleaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of Aozora Bunko in the profile laptop; GPTSAN learns the bundled samples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_PROFILE", "laptop")
    assert corpus_products.GIVEN.resolve()[1] == (tmp_path / "aozora-text/train.jsonl",)
    assert subword_products.UNIGRAM_WORDS.resolve()[1] == (japanese_products.GIVEN,)
    assert pretrain_products.TOKENS.resolve()[1] == (corpus_products.GIVEN, subword_products.UNIGRAM_WORDS)
    learned = (gptsan_products.VOCABULARY, corpus_products.WIKIPEDIA, corpus_products.WEBTEXT)
    assert gptsan_products.CORPUS.resolve()[1] == learned
    with pytest.raises(CourseError, match="aozora-text/train.jsonl"):
        corpus_products.GIVEN.path()

    (tmp_path / "own.yaml").write_text("extends: laptop\ncorpus: {sources: {documents: [a.jsonl, b.txt]}}\n")
    (tmp_path / "a.jsonl").write_text('{"text": "一つ目\\n二行"}\n', encoding="utf8")
    (tmp_path / "b.txt").write_text("二つ目\n\n三つ目\n", encoding="utf8")
    monkeypatch.setenv("COURSE_PROFILE", "own.yaml")
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path / "workspace"))
    written = (corpus_products.GIVEN.path() / corpus_products.DOCUMENTS).read_text(encoding="utf8")
    assert [json.loads(line)["text"] for line in written.splitlines()] == ["一つ目\n二行", "二つ目", "三つ目"]
    monkeypatch.setenv("COURSE_PROFILE", "tiny")
    with pytest.raises(UsageError, match="'corpus/documents' does not exist in profile tiny"):
        corpus_products.GIVEN.path()


def test_bundled_data_is_found_or_refused() -> None:
    assert workspace.data("jawiki-sample.xml.bz2").is_file()
    with pytest.raises(UsageError, match=r"nope\.txt.*jawiki-sample"):
        workspace.data("nope.txt")


def test_a_product_that_a_command_writes_is_fresh(own_workspace: Path) -> None:
    """Such as a tokenizer: the command's function replaces the folder of the product, and marks it."""

    def build(folder: Path, _inputs: list[Path], _settings: Any) -> dict[str, Any]:
        with files.atomic_folder(folder) as written:
            (written / "text").write_text("one")
        return {}

    product = Product("a/first", build)
    assert product.path() == own_workspace / "tiny/a/first"
    assert product.state() == FRESH
    assert sorted(os.listdir(product.folder)) == [files.FILE_LIST, manifests.FILE, "text"]


def test_a_product_of_a_checkout_is_fresh_in_an_installed_wheel() -> None:
    library = paths.REPOSITORY / "course_lib"
    assert workspace._key(library / "data/tasks/smile.jsonl") == "data/tasks/smile.jsonl"
    assert workspace._key(paths.data("tasks/smile.jsonl")) == "data/tasks/smile.jsonl"

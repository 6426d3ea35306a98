"""Settings: what goes round unchanged, and what is refused in one line that names it."""

import math
import re
from pathlib import Path
from typing import Any, Literal

import pytest
from course_lib.errors import UsageError
from course_lib.japanese import products
from course_lib.settings import config, profiles
from course_lib.settings.config import STRICT, Section, setting
from course_lib.training.settings import RunsConfig
from course_lib.workspace import chapters
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from tests import configs_page


@dataclass(frozen=True, config=STRICT)
class Engine:
    steps: int = setting(10, "optimizer steps", ge=1)
    rate: float = setting(0.5, "learning rate", gt=0)


@dataclass(frozen=True, config=STRICT)
class Job:
    engine: Engine = setting(Engine(), "the engine")
    name: str = setting("職", "name")
    kind: Literal["small", "large"] = setting("small", "size")
    files: tuple[Path, ...] = setting((), "inputs")
    words: list[str] = setting([], "words")
    most: int | None = setting(None, "limit [lines]")
    low: int = setting(1, "lower bound")
    high: int = setting(9, "upper bound")
    fast: bool = setting(False, "hurry")

    @model_validator(mode="after")
    def _ordered(self) -> "Job":
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}; low must be at most high")
        return self


# PyYAML turns U+0085 (a line break of EBCDIC) into a space.
NOT_KEPT = "\x85"
# What UTF-8 can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NOT_KEPT))
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0" + NOT_KEPT), min_size=1).map(Path)
ENGINES = st.builds(
    Engine, steps=st.integers(1), rate=st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
)
JOBS = st.builds(
    Job, engine=ENGINES, name=TEXT, kind=st.sampled_from(["small", "large"]), files=st.lists(PATHS).map(tuple), words=st.lists(TEXT),
    most=st.none() | st.integers(), low=st.integers(max_value=0), high=st.integers(0), fast=st.booleans(),
)  # fmt: skip


@pytest.fixture
def job_yaml(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def refusal(path: Path, text: str | bytes, *overrides: str) -> str:
    """The one line that refuses a Job's YAML."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as caught:
        config.load(Job, path, overrides)
    line = str(caught.value)
    assert "\n" not in line
    return line


ODD = ["${oc.env:HOME}", "???", "null", "1e3", "1_000", "0x1", "1:30", "~", "on", ""]


@given(JOBS)
@example(Job(name="${nope} \\${x} \\\\${y} ${", words=ODD))
def test_yaml_gives_the_same_settings_back(tmp_path_factory: pytest.TempPathFactory, job: Job) -> None:
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    path.write_text(config.to_yaml(job), encoding="utf8", newline="")
    assert config.load(Job, path) == job
    assert config.build(Job, config.to_dict(job)) == job


@given(ENGINES.filter(lambda engine: math.isfinite(engine.rate)))
def test_overrides_give_the_same_settings_back(engine: Engine) -> None:
    job = config.build(Job, {"engine": {"steps": 3}}, [f"engine.steps={engine.steps}", f"engine.rate={engine.rate!r}"])
    assert job.engine == engine


def test_overrides_win_the_last_first_and_leave_the_rest(job_yaml: Path) -> None:
    job_yaml.write_text("engine: {steps: 3, rate: 2}\nname: a\n")
    overrides = ["engine.steps=4", "engine.steps=5", "words=[x, 'y z']", "files=[a/b]", "name=b=c", "most=4"]
    job = config.load(Job, job_yaml, overrides)
    assert job == Job(engine=Engine(5, 2.0), name="b=c", words=["x", "y z"], files=(Path("a/b"),), most=4)
    assert config.load(Job, job_yaml, ["engine={rate: 1}"]).engine == Engine(3, 1.0)


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "${high}", "a${oc.env:HOME}/${", "\\${high}", "${${high}:x}"])
def test_an_override_is_plain_text(job_yaml: Path, text: str) -> None:
    job_yaml.write_text("name: a\n")
    job = config.load(Job, job_yaml, [f"name={text}", f"words=['{text}']"])
    assert (job.name, job.words) == (text, [text])
    assert config.build(Job, config.to_dict(job)) == job


def test_a_file_names_its_own_folder(job_yaml: Path) -> None:
    job_yaml.write_text("files: ['${here}/list', '${here}-2']\nname: ${oc.env:HOME}")
    job = config.load(Job, job_yaml, ["words=['${here}']"])
    assert job.name == "${oc.env:HOME}"
    assert job.files == (job_yaml.parent / "list", Path(f"{job_yaml.parent}-2")) and job.words == ["${here}"]


def test_what_differs_from_the_defaults() -> None:
    assert config.changed(Job()) == {}
    assert config.changed(Job(engine=Engine(rate=2.0), words=["x"])) == {"engine.rate": 2.0, "words": ["x"]}
    assert config.flat({"a": {"b": {"c": 1}, "d": [2]}, "e": {}}) == {"a.b.c": 1, "a.d": [2]}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("engine: {step: 1}", "engine.step: unknown key; allowed: steps, rate"),
        ("engine: {steps: '3'}", "engine.steps: '3'"),
        ("low: 1.5", "low: 1.5"),
        ("fast: 1", "fast: 1"),
        ("files: [a, 3]", "files.1: 3"),
        ("kind: huge", "kind: 'huge'"),
        ("engine: {rate: .nan}", "engine.rate: nan"),
        ("low: 10", "low 10 is above high 9"),
        ("- a", "key: value"),
        ("low: 1\nname: a\n\tb: c", "line 3"),
        ("name: a\nname: b", "duplicate key name"),
        ("name: !!python/object:os.system x", "python/object:os.system"),
        (b"name: \xff", "0xff"),
        ("null: 3", "key None is not text"),
    ],
)
def test_a_wrong_file_is_refused_by_name(job_yaml: Path, text: str | bytes, wanted: str) -> None:
    line = refusal(job_yaml, text)
    assert line.startswith(str(job_yaml)) and wanted in line


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("low", "--set 'low'"),
        ("engine..steps=3", "--set 'engine..steps=3'"),
        ("words=[a", "--set 'words=[a'"),
        ("name=\ud800", "section.key=value"),
        ("engine.nope=3", "engine.nope: unknown key"),
        ("low.x=3", "low: {'x': 3}"),
        ("high=0", "low 1 is above high 0"),
    ],
)
def test_a_wrong_override_is_refused_by_name(job_yaml: Path, override: str, wanted: str) -> None:
    assert wanted in refusal(job_yaml, "", override)


def test_a_config_that_does_not_exist_lists_those_that_do() -> None:
    with pytest.raises(UsageError, match=r"absent\.yaml.* tiny, laptop, colab, single-gpu, xl, gpt"):
        config.load(Job, "absent.yaml")


# the profiles that come with the library


def read_by_chapters(monkeypatch: pytest.MonkeyPatch) -> dict[str, type[Any]]:
    """Section → settings class, as the steps of all profiles ask for them."""
    asked: dict[str, type[Any]] = {}
    real = config.build

    def noting(cls: type, values: Any, overrides: Any = (), where: str = "") -> Any:
        asked[where.partition(": ")[2]] = cls
        return real(cls, values, overrides, where)

    with monkeypatch.context() as patched:
        patched.setattr(config, "build", noting)
        for profile in profiles.BUNDLED:
            patched.setenv("COURSE_PROFILE", profile)
            for product in chapters.products():
                product.resolve()
    # Read when a run starts or by a notebook, not when a product is defined.
    asked.pop("", None)
    return asked | {"training.runs": RunsConfig}


def test_the_sections_a_profile_may_hold_are_those_the_chapters_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_by_chapters(monkeypatch) == {name: each.cls for name, each in config.known_sections().items()}


def test_readme_lists_every_setting_of_a_profile_with_its_dataclass() -> None:
    page = (profiles.CONFIGS / "README.md").read_text(encoding="utf8")
    section = page.split("## Settings of profiles\n")[1].split("\n## ")[0]
    assert configs_page.rows(section) == [
        row
        for name, each in config.known_sections().items()
        for row in configs_page.expected(config.describe(each.cls), f"{name}.")
    ]


@pytest.mark.parametrize("profile", profiles.BUNDLED)
def test_every_bundled_profile_is_valid(monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    classes = read_by_chapters(monkeypatch)
    written = profiles.read_yaml(profiles.CONFIGS / f"{profile}.yaml")
    sections = {f"{chapter}.{name}": values for chapter, inner in written.items() for name, values in inner.items()}
    for name, values in sections.items():
        config.build(classes[name], values, where=name)
    monkeypatch.setenv("COURSE_PROFILE", profile)
    assert [product.resolve() for product in chapters.products()]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("japanese: {segmnet: {split: false}}", "japanese.segmnet: unknown section"),
        ("japanese: 3", "japanese: 3 is not allowed: expected `key: value` settings"),
        ("japanese: [segment]", r"japanese: \['segment'\] is not allowed: expected `key: value` settings"),
        # The name of a section without its settings
        ("japanese: segment", "japanese: 'segment' is not allowed: expected `key: value` settings"),
        ("japanese: {segment: 3}", "japanese.segment: 3 is not allowed: expected `key: value` settings"),
        ("japanesse:", "japanesse: unknown key; allowed: corpus, japanese, .*, training$"),
        ("japanese.segment: {split: false}", "japanese.segment: unknown key; allowed: corpus, japanese"),
        ("japanese: {segment: {splt: false}}", "japanese.segment: splt: unknown key"),
    ],
)
def test_a_misspelt_profile_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, wanted: str) -> None:
    monkeypatch.setattr(profiles, "CONFIGS", tmp_path)
    (tmp_path / "tiny.yaml").write_text(text)
    with pytest.raises(UsageError, match=f"^tiny.yaml: {wanted}"):
        products.WIKIPEDIA.resolve()


def test_a_section_comes_from_the_profile_with_overrides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(profiles, "CONFIGS", tmp_path)
    (tmp_path / "xl.yaml").write_text("corpus:\nsubword:\n  bpe:\n  unigram: {steps: 4}\n")
    monkeypatch.setenv("COURSE_PROFILE", "xl")
    assert Section("subword.unigram", Engine).read(["rate=3"]) == Engine(4, 3.0)
    assert Section("subword.bpe", Engine).read() == Section("corpus.wikipedia", Engine).read() == Engine()


@pytest.mark.parametrize("wrong", ["huge", "", "../tiny"])
def test_the_dial(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    assert profiles.current_name() == "tiny"
    monkeypatch.setenv("COURSE_PROFILE", wrong)
    with pytest.raises(UsageError, match=f"COURSE_PROFILE: {re.escape(wrong)}: .*tiny, .*xl"):
        Section("corpus.sources", Engine).read()


# YAML that no settings file has, but a file from somebody else may

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
ENDLESS = {
    "a: &a [*a]": "an alias of a value that it is part of",
    "a: &a {b: *a}": "an alias of a value that it is part of",
    "a: &a\n  - b: [1, *a]": "an alias of a value that it is part of",
    BOMB: "more than 100,000 values",
    "[" * 5000: "nested too deeply",
    "a: !!int x": "a value that its tag does not allow",
    "a: !!timestamp x": "a value that its tag does not allow",
    "a: !!bool x": "a value that its tag does not allow",
    "a: " + "9" * 5000: "a value that its tag does not allow",
}


@pytest.mark.parametrize("text", ENDLESS)
def test_yaml_that_never_ends_ends_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        config.load(Job, path)
    assert str(caught.value).startswith(f"{path}: not readable as YAML: {ENDLESS[text]}")
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="expected section.key=value"):
        config.build(Job, {}, [f"x={text}"])


def test_aliases_that_end_are_values_as_before(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: &a {b: [1, 2]}\nc: *a\nd: [*a, *a]\n")
    value = {"b": [1, 2]}
    assert profiles.read_yaml(tmp_path / "c.yaml") == {"a": value, "c": value, "d": [value, value]}


def test_a_long_file_is_read_in_linear_time(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("".join(f"k{i}: {i}\n" for i in range(20_000)))
    assert len(profiles.read_yaml(tmp_path / "c.yaml")) == 20_000

"""Which settings a command takes: the defaults that its help shows, -c, a profile by name, --set, options."""

from pathlib import Path

import pytest
from course_lib import cli
from course_lib.command_line import command_table, from_options, runs, train
from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config, profiles
from course_lib.subword.config import BPE_SECTION, BpeConfig


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


SECTIONS = {
    "corpus download": "corpus.download",
    "corpus wikipedia": "corpus.wikipedia",
    "corpus webtext": "corpus.webtext",
    "segment": "japanese.segment",
    "tokenizer bpe": "subword.bpe",
    "tokenizer unigram": "subword.unigram",
    "gptsan vocabulary": "gptsan.vocabulary",
    "gptsan encode": "gptsan.classes",
}


@pytest.mark.parametrize("words", command_table.COMMANDS)
def test_a_command_takes_the_defaults_of_its_help_whatever_the_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.setenv("COURSE_PROFILE", "xl")
    parameter = from_options.settings_parameter(command_table.COMMANDS[words].function())
    if parameter is None:
        assert words not in SECTIONS
        return
    cls, section = parameter.cls, parameter.note.section
    assert (section.name if section else "") == SECTIONS.get(words, "")
    assert from_options.settings(cls, section, None) == cls()
    assert capsys.readouterr() == ("", "")


def test_what_differs_from_the_defaults_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = from_options.settings(BpeConfig, BPE_SECTION, Path("tiny"), ["min_frequency=2"])
    assert chosen == BpeConfig(vocab_size=6000, limit_alphabet=4000, min_frequency=2)
    remark = "settings: vocab_size=6000, min_frequency=2, limit_alphabet=4000; "
    assert capsys.readouterr().err.startswith(remark)


def test_an_option_comes_before_set_and_set_before_the_file() -> None:
    Path("mine.yaml").write_text("vocab_size: 700\nmin_frequency: 3\nlimit_alphabet: 40\n")
    changes = {"vocab_size": 900, "lossless": None}
    chosen = from_options.settings(BpeConfig, None, Path("mine.yaml"), ["min_frequency=4", "vocab_size=800"], changes)
    assert chosen == BpeConfig(vocab_size=900, min_frequency=4, limit_alphabet=40)


def test_a_file_comes_before_a_profile_of_its_name_and_a_folder_does_not() -> None:
    Path("xl").mkdir()
    assert profiles.profile_of_option(Path("xl")) == profiles.profile_of_option(Path("xl.yaml")) == "xl"
    Path("xl.yaml").write_text("vocab_size: 700\n")
    assert profiles.profile_of_option(Path("xl.yaml")) is None
    assert from_options.settings(BpeConfig, BPE_SECTION, Path("xl.yaml")).vocab_size == 700
    Path("gpt2-tiny.yaml").mkdir()
    assert config.load(PretrainConfig, "gpt2-tiny.yaml").model.vocab_size == 1280
    with pytest.raises(UsageError, match="no such config"):
        from_options.settings(BpeConfig, BPE_SECTION, Path("absent/xl.yaml"))
    with pytest.raises(UsageError, match="a profile has no settings of this command"):
        from_options.settings(BpeConfig, None, Path("tiny"))


def test_a_run_is_the_profiles_own_unless_a_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for file_of, file in (
        (train.pretrain_file, "gpt2-xl"),
        (train.gptsan_file, "gptsan-2.8b-extra14-classes"),
        (train.prefix_file, "prefix-neox-3.6b-plain"),
    ):
        assert file_of(Path("xl")) == Path(f"{file}.yaml")
        assert f"{file}.yaml, the run of profile xl" in capsys.readouterr().err
    assert train.pretrain_file(None) == Path("gpt2-tiny.yaml")
    assert train.pretrain_file(Path("gpt2-345m.yaml")) == Path("gpt2-345m.yaml")


def test_a_run_is_of_the_kind_that_its_file_names() -> None:
    for path in sorted(profiles.CONFIGS.glob("*-*.yaml")):
        if path.stem in profiles.BUNDLED:
            continue
        lines = [line for line in path.read_text(encoding="utf8").splitlines() if not line.startswith("#")]
        settings = runs.load(path)
        assert lines[0] == f"kind: {settings.kind}" and isinstance(settings, runs.KINDS[settings.kind].settings)


@pytest.mark.parametrize("kind", runs.KINDS)
def test_a_file_without_a_kind_is_of_the_first_kind_that_accepts_it(kind: str) -> None:
    """As the config.yaml of a run that an earlier version began; what it learns is the same."""
    cls = runs.KINDS[kind].settings
    changes = {"gptsan": ["spout.mode=uniform"], "prefix": ["task_name=smile"]}
    written = config.build(cls, {}, changes.get(kind, []))
    lines = config.to_yaml(written).splitlines(keepends=True)
    assert lines[0] == f"kind: {kind}\n"
    Path("config.yaml").write_text("".join(lines[1:]), encoding="utf8")
    read = runs.load(Path("config.yaml"))
    assert read == written and "kind" not in read.content()
    Path("ambiguous.yaml").write_text("batch: {micro_size: 4}\n")
    assert isinstance(runs.load(Path("ambiguous.yaml")), PretrainConfig)


def test_a_wrong_kind_is_one_line() -> None:
    Path("other.yaml").write_text("kind: [bert]\n")
    with pytest.raises(UsageError, match=r"other.yaml: kind: \"\['bert'\]\" is not allowed; allowed: pretrain, gptsan"):
        runs.load(Path("other.yaml"))
    with pytest.raises(
        UsageError, match="gptsan-tiny.yaml: kind: 'gptsan' is not allowed: input should be one of 'pretr"
    ):
        config.load(PretrainConfig, "gptsan-tiny.yaml")
    Path("none.yaml").write_text("batch: {micro: 4}\nspout: {mode: none}\n")
    with pytest.raises(UsageError, match="none.yaml: batch.micro: unknown key"):
        runs.load(Path("none.yaml"))


def test_the_command_itself_trains_what_its_help_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The published 50,000 entries, which two lines cannot carry."""
    Path("lines.txt").write_text("雨 が 降る 。\n", encoding="utf8")
    for arguments, size in [([], 50000), (["-c", "tiny"], 6000), (["-c", "tiny", "--vocab-size", "7000"], 7000)]:
        assert cli._main(["tokenizer", "bpe", "lines.txt", "-o", "out", *arguments]) == 1
        assert f"course: vocab_size: {size} is more than" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "command"), [("gptsan", "gptsan train"), ("prefix", "prefix train")])
def test_options_of_export_are_those_of_the_kind(kind: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/config.yaml").write_text(f"kind: {kind}\n")
    for option, value in (("--dtype", "fp16"), ("--license", "mit")):
        assert cli._main(["export", "run", "-o", "out", option, value]) == 2
        said = f"course: {option}: not allowed for a run of `course {command}`; allowed: --step\n"
        assert capsys.readouterr().err == said
    Path("run/config.yaml").write_text("kind: pretrain\n")
    assert cli._main(["export", "run", "-o", "out", "--dtype", "fp16"]) == 1
    assert "run" in capsys.readouterr().err and not Path("out").exists()

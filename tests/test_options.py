"""Which settings a verb takes: the defaults that its help shows, -c, a profile by name, --set, options."""

from pathlib import Path
from typing import Any

import pytest
from course_lib import cli
from course_lib.command_line import options, runs, verbs
from course_lib.command_line.generator import settings_class
from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config, profiles
from course_lib.subword.config import BpeConfig


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", [words for words, verb in verbs.VERBS.items() if verb.section])
def test_a_verb_takes_the_defaults_of_its_help_whatever_the_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.setenv("COURSE_PROFILE", "xl")
    verb = verbs.VERBS[words]
    cls: Any = settings_class(verb.load())
    assert options.settings(cls, verb.section, None) == cls()
    assert capsys.readouterr() == ("", "")


def test_what_differs_from_the_defaults_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = options.settings(BpeConfig, "subword.bpe", Path("tiny"), ["min_frequency=2"])
    assert chosen == BpeConfig(vocab_size=6000, limit_alphabet=4000, min_frequency=2)
    remark = "settings: vocab_size=6000, min_frequency=2, limit_alphabet=4000; "
    assert capsys.readouterr().err.startswith(remark)


def test_an_option_comes_before_set_and_set_before_the_file() -> None:
    Path("mine.yaml").write_text("vocab_size: 700\nmin_frequency: 3\nlimit_alphabet: 40\n")
    changes = {"vocab_size": 900, "lossless": None}
    chosen = options.settings(BpeConfig, "", Path("mine.yaml"), ["min_frequency=4", "vocab_size=800"], changes)
    assert chosen == BpeConfig(vocab_size=900, min_frequency=4, limit_alphabet=40)


def test_a_file_comes_before_a_profile_of_its_name_and_a_folder_does_not() -> None:
    Path("xl").mkdir()
    assert profiles.named(Path("xl")) == profiles.named(Path("xl.yaml")) == "xl"
    Path("xl.yaml").write_text("vocab_size: 700\n")
    assert profiles.named(Path("xl.yaml")) is None
    assert options.settings(BpeConfig, "subword.bpe", Path("xl.yaml")).vocab_size == 700
    Path("gpt2-tiny.yaml").mkdir()
    assert config.load(PretrainConfig, "gpt2-tiny.yaml").model.vocab_size == 1280
    with pytest.raises(UsageError, match="no such config"):
        options.settings(BpeConfig, "subword.bpe", Path("absent/xl.yaml"))
    with pytest.raises(UsageError, match="a profile has no settings of this verb"):
        options.settings(BpeConfig, "", Path("tiny"))


def test_a_run_is_the_profiles_own_unless_a_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    files = ("gpt2-xl", "gptsan-2.8b-extra14-classes", "prefix-neox-3.6b-plain")
    for kind, file in zip(runs.KINDS, files, strict=True):
        assert kind.read(Path("xl"), ())[1] == Path(f"{file}.yaml")
        assert f"{file}.yaml, the run of profile xl" in capsys.readouterr().err
    assert runs.PRETRAIN.read(None, ())[1] == Path("gpt2-tiny.yaml")
    assert runs.PRETRAIN.read(Path("gpt2-345m.yaml"), ())[1] == Path("gpt2-345m.yaml")


def test_the_verb_itself_trains_what_its_help_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The published 50,000 entries, which two lines cannot carry."""
    Path("lines.txt").write_text("雨 が 降る 。\n", encoding="utf8")
    for arguments, size in [([], 50000), (["-c", "tiny"], 6000), (["-c", "tiny", "--vocab-size", "7000"], 7000)]:
        assert cli._main(["tokenizer", "bpe", "lines.txt", "-o", "out", *arguments]) == 1
        assert f"course: vocab_size: {size} is more than" in capsys.readouterr().err

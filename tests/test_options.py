"""Which settings a verb takes, and what it says of them: the defaults its help shows, -c, a profile by name, --set."""

from pathlib import Path
from typing import Any

import pytest
from course_lib import cli
from course_lib.command_line import options, verbs
from course_lib.corpus.config import DownloadConfig, WebtextConfig, WikipediaConfig
from course_lib.errors import UsageError
from course_lib.gptsan import cli as gptsan
from course_lib.gptsan.config import VocabularyConfig
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.japanese.config import SegmentConfig
from course_lib.prefix import cli as prefix
from course_lib.pretrain import cli as pretrain
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config, profiles
from course_lib.subword.config import BpeConfig, UnigramConfig
from course_lib.training.run_verb import RunKind

VERBS: dict[str, type[Any]] = {  # the sections of verbs that work on a user's own files
    "corpus.download": DownloadConfig, "corpus.wikipedia": WikipediaConfig, "corpus.webtext": WebtextConfig,
    "japanese.segment": SegmentConfig, "subword.bpe": BpeConfig, "subword.unigram": UnigramConfig,
    "gptsan.vocabulary": VocabularyConfig, "gptsan.classes": EncodeConfig,
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("profile", profiles.BUNDLED)
@pytest.mark.parametrize("section", VERBS)
def test_a_verb_takes_the_defaults_of_its_help_whatever_the_dial(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], profile: str, section: str
) -> None:
    monkeypatch.setenv("COURSE_PROFILE", profile)
    cls = VERBS[section]
    assert options.settings(cls, section, None, None) == cls()
    assert capsys.readouterr() == ("", "")


def test_what_differs_from_the_defaults_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert options.settings(BpeConfig, "subword.bpe", Path("tiny"), ["min_frequency=2"]) == BpeConfig(
        vocab_size=6000, limit_alphabet=4000, min_frequency=2
    )
    told = "settings: vocab_size=6000, min_frequency=2, limit_alphabet=4000; all others are the defaults\n"
    assert capsys.readouterr() == ("", told)
    assert options.settings(WebtextConfig, "corpus.webtext", None, ["dedup.ngram=5", "dedup.num_perm=192"])
    assert capsys.readouterr().err == "settings: dedup.ngram=5; all others are the defaults\n"
    Path("mine.yaml").write_text("vocab_size: 700\n")
    assert options.settings(BpeConfig, "subword.bpe", Path("mine.yaml"), None) == BpeConfig(vocab_size=700)
    assert capsys.readouterr().err == "settings: vocab_size=700; all others are the defaults\n"


def test_a_file_comes_before_a_profile_of_its_name_and_a_folder_does_not() -> None:
    Path("xl").mkdir()
    assert profiles.named(Path("xl")) == profiles.named(Path("xl.yaml")) == "xl"
    Path("xl.yaml").write_text("vocab_size: 700\n")
    assert profiles.named(Path("xl.yaml")) is None
    assert options.settings(BpeConfig, "subword.bpe", Path("xl.yaml"), None).vocab_size == 700
    Path("gpt2-tiny.yaml").mkdir()
    assert config.load(PretrainConfig, "gpt2-tiny.yaml").model.vocab_size == 6000
    with pytest.raises(UsageError, match=r"^absent/xl\.yaml: no such config; allowed: "):
        options.settings(BpeConfig, "subword.bpe", Path("absent/xl.yaml"), None)


def test_a_verb_without_a_section_refuses_a_profile() -> None:
    with pytest.raises(UsageError, match=r"^-c tiny: a profile has no settings of this verb; allowed: a YAML file$"):
        options.given(BpeConfig, Path("tiny"), None)


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        (pretrain.RUN, ("gpt2-tiny.yaml", "gpt2-xl.yaml")),
        (gptsan.RUN, ("gptsan-tiny-extra.yaml", "gptsan-2.8b-extra14-classes.yaml")),
        (prefix.RUN, ("prefix-tiny.yaml", "prefix-neox-3.6b-lines.yaml")),
    ],
)
def test_a_run_is_the_profiles_own_unless_a_file_is_named(
    capsys: pytest.CaptureFixture[str], kind: RunKind[Any], runs: tuple[str, str]
) -> None:
    assert options.run_file(None, kind.of_profile) == Path(runs[0])
    assert capsys.readouterr().err == f"settings: {runs[0]}, the run of profile tiny\n"
    assert options.run_file(Path("xl"), kind.of_profile) == Path(runs[1])
    assert capsys.readouterr().err == f"settings: {runs[1]}, the run of profile xl\n"
    assert options.run_file(Path("gpt2-345m.yaml"), kind.of_profile) == Path("gpt2-345m.yaml")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [words for words, row in verbs.VERBS.items() if row[0]])
def test_the_table_says_what_the_function_says(words: str) -> None:
    function, settings, help = verbs.VERBS[words]
    command = verbs._Verb(words.split()[-1], function, settings, help).load()
    assert command.name == words.split()[-1]
    assert " ".join(command.help.split("\n\n")[0].split()) == help
    assert ("Settings (in the YAML of -c" in (command.epilog or "")) == bool(settings)


def test_the_verb_itself_trains_what_its_help_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The published 50 000 entries, which two lines cannot carry; the dial stands on tiny."""
    (tmp_path / "lines.txt").write_text("雨 が 降る 。\n", encoding="utf8")
    assert cli._main(["tokenizer", "bpe", "lines.txt", "-o", "out"]) == 1
    assert capsys.readouterr().err.startswith("course: vocab_size: 50000 is more than")
    assert cli._main(["tokenizer", "bpe", "lines.txt", "-o", "out", "-c", "tiny"]) == 1
    assert "settings: vocab_size=6000, limit_alphabet=4000; " in (told := capsys.readouterr().err)
    assert "course: vocab_size: 6000 is more than" in told

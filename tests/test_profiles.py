"""Profiles of a user and settings files that extend others."""

import os
import re
from pathlib import Path

import pytest
from course_lib import cli, paths
from course_lib.command_line import from_options
from course_lib.corpus.config import WEBTEXT_SECTION
from course_lib.errors import UsageError
from course_lib.pretrain.config import RECIPE_SECTION, PretrainConfig
from course_lib.settings import config, profiles
from course_lib.subword.config import BPE_SECTION, BpeConfig


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def write_profile(monkeypatch: pytest.MonkeyPatch, text: str, path: str = "mine/small.yaml") -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf8")
    monkeypatch.setenv("COURSE_PROFILE", path)
    return file


def test_values_are_merged_key_by_key_and_lists_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(
        monkeypatch, "extends: xl\ncorpus: {webtext: {dedup: {ngram: 5}}}\nsubword: {bpe: {vocab_size: 300}}\n"
    )
    dedup = WEBTEXT_SECTION.read().dedup
    assert (dedup.ngram, dedup.num_bands) == (5, 32)
    bpe = BPE_SECTION.read()
    assert (bpe.vocab_size, bpe.min_frequency, bpe.limit_alphabet) == (300, 1, 8000)
    assert RECIPE_SECTION.read().config == "gpt2-xl.yaml"
    Path("run.yaml").write_text("extends: gpt2-tiny\ndata: {seq_length: 64}\nengine: {tracking: [wandb]}\n")
    run = config.load(PretrainConfig, "run.yaml")
    assert run.data.seq_length == 64 and run.engine.tracking == ("wandb",) and run.model.vocab_size == 1280


def test_a_profile_of_the_user_has_another_workspace_and_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_profile(monkeypatch, "extends: tiny.yaml\npretrain: {recipe: {config: run.yaml}}\n")
    Path("mine/run.yaml").write_text("extends: gpt2-tiny\nbatch: {micro_size: 3}\n")
    assert profiles.current_name() == "small" and paths.root().name == "small"
    monkeypatch.setenv("COURSE_PROFILE", os.path.abspath("mine/small.yaml"))
    Path("notebooks").mkdir()
    monkeypatch.chdir("notebooks")
    assert config.load(PretrainConfig, RECIPE_SECTION.read().config).batch.micro_size == 3
    assert profiles.beside("texts") == tmp_path / "mine/texts"
    assert profiles.beside(tmp_path) == tmp_path


def test_a_changed_base_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(monkeypatch, "extends: base.yaml\n")
    base = Path("mine/base.yaml")
    for size in (400, 500):
        base.write_text(f"extends: tiny\nsubword: {{bpe: {{vocab_size: {size}}}}}\n")
        os.utime(base, ns=(size, size))
        assert BPE_SECTION.read().vocab_size == size


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("extends: gpt2-tiny\n", "extends no profile"),
        ("extends: nowhere\n", "nowhere: no such config"),
        ("extends: [tiny]\n", "small.yaml: extends: ['tiny']"),
        ("extends: small.yaml\n", "small.yaml extends itself"),
        ("extends: tiny\nsubword: {bpe: {vocab: 3}}\n", "small.yaml: subword.bpe: vocab: unknown key"),
    ],
)
def test_a_wrong_profile_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, text: str, wanted: str) -> None:
    write_profile(monkeypatch, text)
    with pytest.raises(UsageError, match=re.escape(wanted)) as error:
        BPE_SECTION.read()
    assert "\n" not in str(error.value)


def test_commands_hand_an_absolute_path_to_their_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_profile(monkeypatch, "extends: tiny\n")
    with pytest.raises(SystemExit):
        cli.main(["clean", "1", "--dry-run"])
    assert os.environ["COURSE_PROFILE"] == str(path.absolute())
    assert "/small;" in capsys.readouterr().out


def test_a_profile_of_the_user_needs_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(monkeypatch, "extends: xl\n", "mine/tiny.yaml")
    with pytest.raises(UsageError, match="another name"):
        profiles.current_name()


def test_a_command_takes_a_profile_of_the_user_by_its_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(monkeypatch, "extends: tiny\nsubword: {bpe: {vocab_size: 300}}\n")
    monkeypatch.delenv("COURSE_PROFILE")
    chosen = from_options.settings(BpeConfig, BPE_SECTION, Path("mine/small.yaml"), None)
    assert (chosen.vocab_size, chosen.limit_alphabet) == (300, 4000)
    assert "vocab_size=300" in capsys.readouterr().err
    Path("command.yaml").write_text("vocab_size: 700\n")
    assert from_options.settings(BpeConfig, BPE_SECTION, Path("command.yaml"), None) == BpeConfig(vocab_size=700)

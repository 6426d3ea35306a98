"""`course profile show` and `course new`: what a profile sets and costs, and a profile for texts of one's own."""

import json
import re
from pathlib import Path

import pytest
from course_lib import cli
from course_lib.command_line import costs
from course_lib.corpus import products
from course_lib.corpus.config import SOURCES_SECTION
from course_lib.gptsan import products as gptsan
from course_lib.pretrain.config import RECIPE_SECTION, PretrainConfig
from course_lib.settings import config, profiles
from course_lib.subword.config import BPE_SECTION

TEXT = "猫は庭で遊び、昼には木のかげで眠った。夕方になると台所の前で鳴いて、魚がほしいと言った。雨の日は窓のそばにすわって外を見ていた。"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int:
    return cli._main(list(arguments))


@pytest.mark.parametrize("profile", profiles.BUNDLED)
def test_show_resolves_every_profile(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "show", profile) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"profile {profile}: ")
    Path("shown.yaml").write_text(text.split("\n\n")[1].split("# All other")[0])
    assert profiles.read_yaml(Path("shown.yaml")) == profiles.read_yaml(profiles.CONFIGS / f"{profile}.yaml")
    assert run("profile", "show", profile, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    whole = sum(each["size"] for each in content["downloads"])
    downloads = {"colab": 300_000_000, "single-gpu": 16_150_000_000, "xl": 38_100_000_000}
    assert whole == downloads.get(profile, 0)
    assert all(stage["hours"] > 0 and stage["disk"] > 0 for stage in content["stages"])


def test_estimates_follow_length_and_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def hours(run: str) -> float:
        Path("run.yaml").write_text(run)
        Path("mine.yaml").write_text("extends: tiny\npretrain: {recipe: {config: run.yaml}}\n")
        monkeypatch.setenv("COURSE_PROFILE", str(Path("mine.yaml").absolute()))
        return next(stage.hours for stage in costs.stages() if stage.what.startswith("GPT-2"))

    base = hours("extends: gpt2-tiny\n")
    assert hours("extends: gpt2-tiny\nengine: {max_steps: 6960}\n") == pytest.approx(3 * base)
    assert hours("extends: gpt2-tiny\nmodel: {num_layers: 400}\n") > 5 * base
    assert hours("extends: gpt2-xl\n") > 50 * base and "planned for 8 × " in costs.stages()[4].what


def test_new_makes_a_profile_of_texts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("novel.txt").write_text(f"{TEXT}\n\n{TEXT}別の話。\n", encoding="utf8")
    Path("more.jsonl").write_text(json.dumps({"text": TEXT + "三つ目。"}, ensure_ascii=False) + "\n", encoding="utf8")
    assert run("new", "my-text", "novel.txt", "more.jsonl") == 0
    said = capsys.readouterr().out
    assert said.startswith("my-text/my-text.yaml: 3 documents, ") and "; 3 of them too short" in said
    monkeypatch.setenv("COURSE_PROFILE", "my-text/my-text.yaml")
    assert profiles.current_name() == "my-text"
    found = products.user_files(SOURCES_SECTION.read())
    assert [path.name for path in found] == ["more.jsonl", "novel.txt"]
    Path("my-text/texts/.hidden").write_text("x")
    assert products.user_files(SOURCES_SECTION.read()) == found
    # The models learn these texts, and their vocabularies are those of the tokenizers.
    assert not products.has_world()
    run_file = RECIPE_SECTION.read().config
    assert config.load(PretrainConfig, run_file).model.vocab_size == BPE_SECTION.read().vocab_size
    assert gptsan.base_settings().model.shape.vocab_size == gptsan.VOCABULARY.resolve()[0].size
    assert run("new", "empty") == 0
    assert "empty/texts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "wanted", "code"),
    [
        (["tiny"], "tiny: ", 2),
        (["a", "--like", "huge"], "--like: 'huge'", 2),
        (["a", "picture.png"], "picture.png: is neither .txt nor .jsonl", 2),
        (["a", "empty.txt"], "empty.txt: no document", 1),
        (["a", "bad.jsonl"], "bad.jsonl, line 1: ", 1),
        (["a", "text.txt", "there/text.txt"], "text.txt: two texts", 2),
        (["a", "there"], "there: is a folder", 2),
    ],
)
def test_new_refuses_in_one_line_and_writes_nothing(
    arguments: list[str], wanted: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there").mkdir()
    for name, content in {"picture.png": "x", "empty.txt": "\n\n", "bad.jsonl": "{\n", "text.txt": TEXT}.items():
        Path(name).write_text(content, encoding="utf8")
    Path("there/text.txt").write_text(TEXT, encoding="utf8")
    assert run("new", *arguments) == code
    error = capsys.readouterr().err
    assert re.match(re.escape(f"course: {wanted}"), error) and error.count("\n") == 1
    assert not Path("a").exists() and sorted(path.name for path in Path("there").iterdir()) == ["text.txt"]

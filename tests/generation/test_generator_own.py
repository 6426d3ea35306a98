"""A model's own generation_config.json: followed where no option is given, by `course generate`, CTranslate2 and exports."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from course_lib import cli
from course_lib.checkpoints.model_folder import GENERATION, generation_defaults
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.scoring import Sampling
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec
from course_lib.serving import ct2
from course_lib.serving.ct2_generate import Ct2Generator
from course_lib.serving.export import export
from course_lib.serving.ft_import import import_folder

from tests.pretrain import models

OWN = {"do_sample": True, "temperature": 0.5, "top_p": 1.0, "top_k": 3}
# Squares of 0.4, 0.3 and 0.2, which is what OWN makes of the model's probabilities.
SHARES = [16 / 29, 9 / 29, 4 / 29]


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes 大 with probability 0.4, 学 0.3, 強 0.2 or 。 0.1, whatever came before."""
    place = tmp_path_factory.mktemp("flat")
    return models.flat(models.memorized(place), place / "model")


def with_own(flat: Path, target: Path, **values: Any) -> Path:
    shutil.copytree(flat, target)
    path = target / GENERATION
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return target


def shares(generator: Any, **given: Any) -> list[float]:
    settings = GenerateConfig(**{"max_new_tokens": 1, "num_return_sequences": 1000} | given)
    counts = Counter(one.continuation for one in generator.generate(["早"], settings)[0])
    return sorted((count / 1000 for count in counts.values()), reverse=True)


def test_temperature_top_p_and_top_k_of_the_file(flat: Path, tmp_path: Path) -> None:
    generator = Generator(with_own(flat, tmp_path / "own", **OWN), text_codec.load)
    assert shares(generator) == pytest.approx(SHARES, abs=0.05)
    assert shares(generator, temperature=1.0) == pytest.approx([4 / 9, 3 / 9, 2 / 9], abs=0.05)
    assert shares(generator, top_k=0) == pytest.approx([16 / 30, 9 / 30, 4 / 30, 1 / 30], abs=0.05)
    # Without a file's word: top_k 50 and top_p 0.75.
    assert shares(Generator(flat, text_codec.load)) == pytest.approx([4 / 9, 3 / 9, 2 / 9], abs=0.05)


def test_greedy_penalty_and_ends_of_the_file(flat: Path, tmp_path: Path) -> None:
    generator = Generator(with_own(flat, tmp_path / "greedy", do_sample=False), text_codec.load)
    ((found,),) = generator.generate(["早"], GenerateConfig(max_new_tokens=6))
    assert found.continuation == "大" * 6
    own: dict[str, Any] = {"do_sample": False, "no_repeat_ngram_size": 2}
    ((found,),) = Generator(with_own(flat, tmp_path / "no-repeat", **own), text_codec.load).generate(
        ["早"], GenerateConfig(max_new_tokens=6)
    )
    assert "大大大" not in found.continuation
    # The logits are negative, so a penalty makes what has been written less likely.
    own = {"do_sample": False, "repetition_penalty": 5.0}
    penalized = Generator(with_own(flat, tmp_path / "penalty", **own), text_codec.load)
    ((found,),) = penalized.generate(["早"], GenerateConfig(max_new_tokens=3))
    assert found.continuation == "大学強"
    assert FolderScorer(penalized).complete(["早"], Sampling(3)) == ["大大大"]
    ends = [2, generator.codec.encode("大")[-1]]
    ending = Generator(with_own(flat, tmp_path / "ends", do_sample=False, eos_token_id=ends), text_codec.load)
    ((found,),) = ending.generate(["早"], GenerateConfig(max_new_tokens=6))
    # The first token may not be an end: --min-new-tokens is 1.
    assert found.continuation == "学"


def test_an_option_a_file_and_set_come_before_the_models_own(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = with_own(flat, tmp_path / "own", do_sample=False, repetition_penalty=5.0)
    (tmp_path / "mine.yaml").write_text("repetition_penalty: 1.0\n")
    line = "settings of the model's generation_config.json: "
    for arguments, text, said in (
        ([], "早大学強", f"{line}strategy=greedy, repetition_penalty=5.0\n"),
        (["--repetition-penalty", "1"], "早大大大", f"{line}strategy=greedy\n"),
        (["--set", "repetition_penalty=1.0"], "早大大大", f"{line}strategy=greedy\n"),
        (["-c", str(tmp_path / "mine.yaml")], "早大大大", f"{line}strategy=greedy\n"),
        (["--strategy", "sampling", "--top-k", "1"], "早大学強", f"{line}repetition_penalty=5.0\n"),
        (["--quiet"], "早大学強", ""),
    ):
        for words in (["generate"], ["prefix", "generate"]):
            assert cli._main([*words, str(own), "早", "--max-new-tokens", "3", *arguments]) == 0
            assert capsys.readouterr() == (f"{text}\n", said)


def test_ctranslate2_follows_what_it_can_and_a_folder_comes_back_whole(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = with_own(flat, tmp_path / "own", **OWN, repetition_penalty=5.0)
    ct2.export(own, tmp_path / "ct2")
    assert shares(Ct2Generator(tmp_path / "ct2")) == pytest.approx(SHARES, abs=0.05)
    assert cli._main(["ct2", "generate", str(tmp_path / "ct2"), "早", "--max-new-tokens", "3"]) == 0
    assert capsys.readouterr().err.startswith("settings of the model's generation_config.json: top_k=3, top_p=1.0, ")
    export(own, tmp_path / "ft")
    import_folder(tmp_path / "ft", tmp_path / "again")
    back = generation_defaults(tmp_path / "again")
    assert {name: back[name] for name in (*OWN, "repetition_penalty")} == OWN | {"repetition_penalty": 5.0}
    greedy = with_own(flat, tmp_path / "greedy", do_sample=False, num_beams=4)
    ct2.export(greedy, tmp_path / "ct2-greedy")
    ((found,),) = Ct2Generator(tmp_path / "ct2-greedy").generate(["早"], GenerateConfig(max_new_tokens=3))
    assert found.continuation == "大大大"

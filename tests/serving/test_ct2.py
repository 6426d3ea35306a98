"""CTranslate2: logits and greedy text of the Hugging Face model, smaller formats, padded vocabularies, drawing, and refusals."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from course_lib import cli
from course_lib.errors import CourseError, UsageError
from course_lib.evaluation.bits import bits
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.windows import WindowSettings
from course_lib.generation.codec import before_end
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import left_padded
from course_lib.models import frozen_base
from course_lib.pretrain import text_codec
from course_lib.serving import ct2
from course_lib.serving.ct2_generate import Ct2Generator
from course_lib.serving.ct2_score import Ct2Scorer
from course_lib.settings import config
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

from tests.pretrain import models
from tests.pretrain.models import SENTENCE

GREEDY = GenerateConfig(strategy="greedy", max_new_tokens=12)
PROMPT = "早稲田大学で Deep"
NEOX = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.tokenizer(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def memorized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.memorized(tmp_path_factory.mktemp("memorized"))


def random_model(words: Path, folder: Path, family: str, **changes: Any) -> Path:
    """A model whose greedy texts have some variety, and whose rows that are no token would often be chosen."""
    shutil.copytree(words, folder, ignore=shutil.ignore_patterns("config.json", "model.safetensors"))
    rows = len(AutoTokenizer.from_pretrained(folder)) + models.PADDING
    torch.manual_seed(0)
    ends = {"vocab_size": rows, "bos_token_id": 2, "eos_token_id": 2}
    model: Any
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(n_positions=40, n_embd=32, n_layer=2, n_head=2, **ends | changes))
    else:
        model = GPTNeoXForCausalLM(GPTNeoXConfig(max_position_embeddings=40, **NEOX | ends | changes))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * 0.3 + ("norm" in name or ".ln_" in name) * name.endswith("weight"))
        model.get_output_embeddings().weight[-models.PADDING :] *= 8
    model.save_pretrained(folder)
    return folder


def rope(fraction: float, theta: float = 10000.0) -> dict[str, Any]:
    return {"rope_type": "default", "partial_rotary_factor": fraction, "rope_theta": theta}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", {"layer_norm_epsilon": 0.1, "tie_word_embeddings": False, "activation_function": "relu"}),
        ("neox", {"rope_parameters": rope(0.25), "use_parallel_residual": False, "layer_norm_eps": 0.1}),
        ("neox", {"rope_parameters": rope(1.0), "use_parallel_residual": True, "attention_bias": False}),
        ("neox", {"rope_parameters": rope(1.0, 30.0), "use_parallel_residual": False, "tie_word_embeddings": True}),
    ],
)
def test_logits_and_greedy_texts_are_those_of_hugging_face(
    family: str, changes: dict[str, Any], words: Path, tmp_path: Path
) -> None:
    source = random_model(words, tmp_path / "model", family, **changes)
    report = ct2.export(source, tmp_path / "ct2")
    assert report.unused == models.PADDING
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in (tmp_path / "ct2").iterdir())
    hugging_face, ours = Generator(source, text_codec.load), Ct2Generator(tmp_path / "ct2", threads=1)

    rows = [[5, 9, 260, 7, 30], [11, 12, 13, 14, 15]]
    with torch.inference_mode():
        expected = hugging_face.model(torch.tensor(rows)).logits.numpy()
    found = np.asarray(ours._engine.forward_batch([[ours.tokens[number] for number in row] for row in rows]))
    known = len(hugging_face.codec)
    np.testing.assert_allclose(found[..., :known], expected[..., :known], atol=2e-4)
    assert expected.argmax(-1).max() >= known > found.argmax(-1).max()

    rows = [[2], [7], *rows, list(range(40, 60))]
    texts = []
    for row in rows:
        written = hugging_face.model.generate(torch.tensor([row]), hugging_face._arguments(GREEDY, 12))
        texts.append(before_end(written[0, len(row) :].tolist(), 2))
    assert len({tuple(text) for text in texts}) > 3
    assert [new for (new,) in ours.continue_ids(rows, GREEDY)] == texts
    assert [ours.continue_ids([row], GREEDY)[0][0] for row in rows] == texts


def test_bits_are_those_of_hugging_face(memorized: Path, tmp_path: Path) -> None:
    ct2.export(memorized, tmp_path / "ct2")
    ours = Ct2Scorer(Ct2Generator(tmp_path / "ct2", threads=1))
    theirs = FolderScorer(Generator(memorized, text_codec.load))
    assert ours.max_length == theirs.max_length
    texts, settings = ["早稲田大学で Deep", "京都" * 30], WindowSettings(window=12, stride=5)
    found, expected = bits(ours, texts, settings), bits(theirs, texts, settings)
    assert found.bits == pytest.approx(expected.bits, rel=1e-4)
    assert (found.tokens, found.lost_characters) == (expected.tokens, expected.lost_characters)


def test_smaller_formats(memorized: Path, tmp_path: Path) -> None:
    whole = ct2.export(memorized, tmp_path / "float32")
    report = ct2.export(memorized, tmp_path / "small", "int8")
    assert report.size < whole.size * 0.36
    ours = Ct2Generator(tmp_path / "small")
    assert [texts[0].text for texts in ours.generate(["", "早稲田大学"], GREEDY)] == [SENTENCE] * 2


def test_greedy_texts_of_a_given_length_are_those_of_hugging_face_and_go_on_behind_the_end(
    memorized: Path, tmp_path: Path
) -> None:
    ct2.export(memorized, tmp_path / "ct2")
    rows = [[5, 6, 7, 8], [9], [10, 11, 260], [12, 13]]
    model = frozen_base.load(memorized)
    ids, mask = left_padded(rows, model.device)
    end = model.generation_config.eos_token_id
    options = {"max_new_tokens": 30, "min_new_tokens": 30, "eos_token_id": end, "pad_token_id": end}
    with torch.inference_mode():
        texts = model.generate(ids, attention_mask=mask, do_sample=False, **options)
    expected = texts[:, ids.shape[1] :].tolist()
    settings = GenerateConfig(strategy="greedy", max_new_tokens=30, min_new_tokens=30)
    ours = Ct2Generator(tmp_path / "ct2", threads=1)
    written = [texts[0] for texts in ours.continue_ids(rows, settings)]
    assert written == expected and [len(row) for row in written] == [30] * 4


@pytest.fixture(scope="module")
def flat(memorized: Path, tmp_path_factory: pytest.TempPathFactory) -> Ct2Generator:
    folder = tmp_path_factory.mktemp("flat")
    ct2.export(models.flat(memorized, folder / "model"), folder / "ct2")
    return Ct2Generator(folder / "ct2", threads=1)


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({"top_k": 0}, [0.4, 0.3, 0.2, 0.1]),
        ({"top_k": 0, "top_p": 0.65}, [4 / 7, 3 / 7]),
        ({"top_k": 2, "top_p": 0.5}, [1.0]),  # of the top_k's shares, 4/7 alone is above 0.5
        ({"top_k": 0, "temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
    ],
)  # fmt: skip
def test_drawing(flat: Ct2Generator, settings: dict[str, Any], shares: list[float]) -> None:
    (texts,) = flat.generate(
        ["早"], GenerateConfig(**{"top_p": 1.0, "num_return_sequences": 600, "max_new_tokens": 1} | settings)
    )
    counts = Counter(text.continuation for text in texts)
    assert [count / 600 for _, count in counts.most_common()] == pytest.approx(shares, abs=0.07)


def test_same_seed_same_texts(flat: Ct2Generator) -> None:
    def draw(seed: int | None) -> Any:
        settings = GenerateConfig(top_p=1.0, max_new_tokens=20, num_return_sequences=2, seed=seed)
        return flat.generate(["早", "早稲田"], settings)

    first = draw(5)
    assert draw(5) == first
    assert len({text.continuation for texts in first for text in texts}) == 4
    assert draw(6) != first
    assert draw(None) != draw(None)


@pytest.mark.parametrize("settings", [{"strategy": "greedy"}, {"top_k": 0, "top_p": 1.0, "num_return_sequences": 10}])
def test_characters_stay_whole(settings: dict[str, Any], words: Path, tmp_path: Path) -> None:
    """Half of the model's choices are byte tokens."""
    source = random_model(words, tmp_path / "model", "gpt2")
    ct2.export(source, tmp_path / "ct2")
    ours = Ct2Generator(tmp_path / "ct2", threads=1)
    broken, prompts = "\N{REPLACEMENT CHARACTER}", ["早稲田", "", "𠮷", "牛丼"]
    for length in (1, 2, 3, 13):
        texts = ours.generate(prompts, config.build(GenerateConfig, {"max_new_tokens": length} | settings))
        assert not any(broken in one.text for found in texts for one in found)
    raw = ours.continue_ids(
        [ours.codec.encode("牛丼")], config.build(GenerateConfig, {"max_new_tokens": 13} | settings)
    )
    assert any(ours.table.whole(new) != new for (new, *_) in raw)


def test_lengths(flat: Ct2Generator) -> None:
    with pytest.raises(UsageError, match="max_new_tokens: 2"):
        flat.continue_ids([[2] * 39], GenerateConfig(max_new_tokens=2))
    with pytest.raises(UsageError, match="prompt: 40 tokens"):
        flat.continue_ids([[2] * 40])
    unset = flat.continue_ids([[5], [5] * 30, [5] * 39], GenerateConfig(strategy="greedy"))
    assert [len(new) for (new,) in unset] == [39, 10, 1]


def test_settings_of_another_engine(flat: Ct2Generator) -> None:
    with pytest.raises(UsageError, match="^strategy"):
        flat.generate(["早"], GenerateConfig(strategy="beam"))


def test_models_of_another_kind(words: Path, tmp_path: Path) -> None:
    linear = rope(1.0) | {"rope_type": "linear", "factor": 2.0}
    source = random_model(words, tmp_path / "model", "neox", rope_parameters=linear)
    with pytest.raises(CourseError, match="rope_type"):
        ct2.export(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_that_are_none(memorized: Path, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"vocabulary\.json"):
        Ct2Generator(memorized)
    ct2.export(memorized, tmp_path / "out")
    weights = tmp_path / "out" / "model.bin"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(CourseError) as caught:
        Ct2Generator(tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_commands(memorized: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "out")
    assert cli._main(["ct2", "export", str(memorized), "-o", folder, "--quantization", "int8"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("int8, ") and "embedding rows without a token" in shown
    assert cli._main(["ct2", "generate", folder, "早稲田", "", "--set", "strategy=greedy"]) == 0
    assert capsys.readouterr().out.splitlines() == [SENTENCE] * 2
    assert ctranslate2.contains_model(folder)

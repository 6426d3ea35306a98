"""Behind `course demo`: probabilities, mixtures of genres, what the checker says, what is refused, the page's parts."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.command_line import serving
from course_lib.errors import UsageError
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Prefix
from course_lib.gptsan.config import GenerateConfig
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.gptsan.swe import SPECIALS
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.prefix import files
from course_lib.pretrain import text_codec
from course_lib.serving.demo_models import Mixed, Models
from course_lib.serving.writers import SHOWN, Writers
from course_lib.world.genres import documents

from tests.gptsan import handmade, make_port_fixture
from tests.gptsan.test_generate import LETTERS, WIDTH, build
from tests.pretrain import models
from tests.pretrain.models import SENTENCE

pytest.importorskip("gradio", reason="gradio is not installed: pip install -e .[demo]")
from course_lib.serving import demo

PROMPT = SENTENCE[:5]


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The page's models with a GPT-2 that has learned one sentence by heart, and no task."""
    made = Models()
    folder = models.memorized(tmp_path_factory.mktemp("memorized"))
    made.gpt2, made.tasks = Generator(folder, text_codec.load), {}
    return made


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handmade.write(tmp_path_factory.mktemp("words") / "tokenizer", [*LETTERS, *SPECIALS])


@pytest.fixture(scope="module")
def mixed(letters: Path) -> Mixed:
    words = load_tokenizer(letters)
    model = build(words, num_experts=4)
    with torch.no_grad():
        make_port_fixture.fill(model.state_dict())
    return Mixed(model, words)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_next_tokens_have_the_probabilities_of_transformers(writer: Models, temperature: float) -> None:
    model, codec = writer.gpt2.model, writer.gpt2.codec
    with torch.inference_mode():
        logits = model(torch.tensor([codec.encode(PROMPT)])).logits[0, -1, : len(codec)]
    whole = (logits / temperature).softmax(-1).sort(descending=True).values
    found = writer.next_tokens(PROMPT, temperature, top_k=0)
    assert [*found.values()] == pytest.approx(whole[:SHOWN].tolist(), rel=1e-4)
    # Of top_k tokens, no more are drawn: their probabilities are all there is.
    few = writer.next_tokens(PROMPT, temperature, top_k=3)
    assert [*few] == [*found][:3] and sum(few.values()) == pytest.approx(1)
    assert [*few.values()] == pytest.approx((whole[:3] / whole[:3].sum()).tolist(), rel=1e-4)


def test_the_likeliest_token_is_what_the_model_writes(writer: Models) -> None:
    token = next(iter(writer.next_tokens(PROMPT, 1.0, 0)))
    assert token and writer.continue_text(PROMPT, 0.1, 1).startswith(PROMPT + token)
    assert sum(writer.next_tokens("", 1.0, 5).values()) == pytest.approx(1)


@pytest.mark.parametrize("text", ["", "😀🐶", "鬱"])
def test_any_text_has_next_tokens_and_a_continuation(writer: Models, text: str) -> None:
    assert len(writer.next_tokens(text, 1.0, 0)) > 1
    assert writer.continue_text(text, 1.0, 0).startswith(text)


def test_a_text_longer_than_the_model_reads_is_refused_in_one_line(writer: Models) -> None:
    assert writer.next_tokens(SENTENCE * 40, 1.0, 0)
    with pytest.raises(UsageError, match=r"leave 0 of \d+ positions") as refused:
        writer.continue_text(SENTENCE * 40, 1.0, 0)
    assert "\n" not in str(refused.value)


def test_one_genre_writes_what_its_class_does_and_weights_become_shares(mixed: Mixed, letters: Path) -> None:
    mixed.write([0, 0.3, 0, 0], 1.0)
    assert mixed.shares.tolist() == [[0, 1, 0, 0]]
    plain, prompt = GPTSanGenerator(mixed.model, load_tokenizer(letters)), mixed.prompt("")
    how = GenerateConfig(spout=1, greedy=True, max_new_tokens=20)
    assert torch.equal(mixed.tokens(prompt, how), plain.tokens(prompt, how))
    mixed.write([0.5, 0, 1, 0.5], 1.0)
    assert mixed.shares.tolist() == [[0.25, 0, 0.5, 0.25]]
    # None of the sliders is moved: all genres alike. A model whose spout is wider than the genres gets zeros there.
    mixed.write([0.0] * (WIDTH - 1), 1.0)
    assert mixed.shares[0].tolist() == pytest.approx([1 / 3] * 3 + [0])


def test_the_checker_marks_the_sentence_that_contradicts() -> None:
    assert demo.with_findings("") == []
    tale = next(one for one in documents(50, 3) if one.genre == "tale")
    *sentences, genre = demo.with_findings(tale.text)
    assert {fault for _, fault in sentences} == {None} and genre == (" ", "genre: tale")
    # A text so far, with half a sentence, is no error.
    *sentences, _ = demo.with_findings(tale.text[: len(tale.text) // 2])
    assert {fault for _, fault in sentences} == {None}
    (_, foreign), *_ = demo.with_findings("吾輩は猫である。" + tale.text)
    assert foreign == "not of the world"
    colors = {"赤い": "青い", "青い": "赤い"}
    told = next(one for one in documents(200, 4) if one.genre == "tale" and str(one.facts["color"]) in colors)
    color = str(told.facts["color"])
    at = told.text.rindex(color)
    broken = told.text[:at] + colors[color] + told.text[at + len(color) :]
    faults = [fault for _, fault in demo.with_findings(broken)[:-1] if fault]
    assert faults == ["contradiction: color"]


def parts(blocks: Any, kind: str, key: str = "label") -> list[str]:
    return [each["props"][key] for each in blocks.get_config_file()["components"] if each["type"] == kind]


def test_the_page_has_a_column_for_each_writer_and_says_what_is_not_built(
    writer: Models, tmp_path: Path, own_workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(writer.gpt2.folder, tmp_path / "model")
    blocks = demo.page(Writers(tmp_path / "model"), Models())
    assert parts(blocks, "tabitem") == ["aozora", "Write, Genres, Tasks"]
    assert parts(blocks, "textbox") == ["Text", "without a prefix"]
    built = "pretrain/gpt2, prefix/plain, prefix/title, gptsan/tuned. `make course` builds"
    assert any(built in text for text in parts(blocks, "markdown", "value"))

    for name in ("smile", "dowa"):
        prefix = Prefix(torch.zeros(2, writer.gpt2.shape.width), name)
        files.write(prefix, tmp_path / f"model/prefixes/{name}.safetensors")
    monkeypatch.setattr(Models, "missing", lambda self: [])
    blocks = demo.page(Writers(tmp_path / "model"), Models())
    assert parts(blocks, "tabitem") == ["aozora", "Write", "Genres", "Tasks"]
    assert parts(blocks, "textbox")[:4] == ["Text", "without a prefix", "dowa: fairy tales", "smile"]
    # Neither page has built or loaded one of the profile's models.
    assert not any(own_workspace.rglob("*"))


def test_without_gradio_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install"):
        serving.demo()

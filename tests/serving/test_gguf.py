"""GGUF: every number of the model, llama.cpp's layout and settings, the vocabulary, and refusals that leave nothing behind."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
import torch
from course_lib import cli
from course_lib.checkpoints import sentencepiece_unigram
from course_lib.errors import CourseError
from course_lib.japanese import segment
from course_lib.models import frozen_base
from course_lib.serving import gguf_export
from course_lib.serving.gguf_export import export
from course_lib.subword.config import UnigramConfig
from course_lib.subword.unigram import train_unigram
from course_lib.world.genres import documents

from tests.pretrain import models
from tests.serving.test_ct2 import random_model, rope
from tests.subword.parity import TEXTS

TANH = {"gpt2": {"activation_function": "gelu_pytorch_tanh"}, "neox": {"hidden_act": "gelu_new"}}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.tokenizer(tmp_path_factory.mktemp("words"))


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings, and tensors with the shape of NumPy."""
    reader = gguf.GGUFReader(path)
    settings = {name: field.contents() for name, field in reader.fields.items()}
    assert {tensor.tensor_type for tensor in reader.tensors} == {gguf.GGMLQuantizationType.F32}
    return settings, {tensor.name: tensor.data for tensor in reader.tensors}


def same(found: Any, expected: torch.Tensor) -> None:
    assert found.shape == tuple(expected.shape) and found.tobytes() == expected.contiguous().numpy().tobytes()


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2(tied: bool, words: Path, tmp_path: Path) -> None:
    changes = TANH["gpt2"] | {"tie_word_embeddings": tied, "layer_norm_epsilon": 0.1, "n_inner": 48}
    source = random_model(words, tmp_path / "model", "gpt2", **changes)
    report = export(source, tmp_path / "model.gguf")
    settings, tensors = read(tmp_path / "model.gguf")
    model = frozen_base.load(source)
    rows = model.config.vocab_size - models.PADDING
    assert report.unused == models.PADDING
    assert report.size == (tmp_path / "model.gguf").stat().st_size
    assert "token ids" in report.summary() and report.summary().endswith("model.gguf")

    weights = model.transformer.state_dict()
    same(tensors.pop("token_embd.weight"), weights["wte.weight"][:rows])
    same(tensors.pop("position_embd.weight"), weights["wpe.weight"])
    same(tensors.pop("output_norm.weight"), weights["ln_f.weight"])
    same(tensors.pop("output_norm.bias"), weights["ln_f.bias"])
    if not tied:
        same(tensors.pop("output.weight"), model.lm_head.weight[:rows])
    names = {"attn_norm": "ln_1", "ffn_norm": "ln_2"}
    matrices = {"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    for layer in range(2):
        for name, theirs in names.items():
            same(tensors.pop(f"blk.{layer}.{name}.weight"), weights[f"h.{layer}.{theirs}.weight"])
            same(tensors.pop(f"blk.{layer}.{name}.bias"), weights[f"h.{layer}.{theirs}.bias"])
        for name, theirs in matrices.items():
            same(tensors.pop(f"blk.{layer}.{name}.weight").T, weights[f"h.{layer}.{theirs}.weight"])
            same(tensors.pop(f"blk.{layer}.{name}.bias"), weights[f"h.{layer}.{theirs}.bias"])
    assert not tensors

    expected = {
        "general.architecture": "gpt2",
        "general.name": "model",
        "gpt2.context_length": 40,
        "gpt2.embedding_length": 32,
        "gpt2.block_count": 2,
        "gpt2.feed_forward_length": 48,
        "gpt2.attention.head_count": 2,
        "gpt2.attention.layer_norm_epsilon": pytest.approx(0.1),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }
    assert {name: settings[name] for name in expected} == expected
    assert "Send token ids" in settings["general.description"]
    assert str(tmp_path) not in str(settings)
    tokens, kinds = settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.token_type"]
    assert len(tokens) == len(kinds) == rows
    assert (tokens[:3], kinds[:3]) == (["<unk>", "<s>", "</s>"], [2, 3, 3])
    assert sum(kind == 6 for kind in kinds) == 256 and kinds[tokens.index("<0x0A>")] == 6


def unigram(place: Path, segmented: bool) -> Path:
    """A Unigram's folder: for segmented text, or for raw text with entries within words."""
    lines = place / "lines.txt"
    texts = [document.text for document in documents(80, seed=5)]
    lines.write_text("\n".join(segment(line) for text in texts for line in text.split("\n")), encoding="utf8")
    train_unigram(
        [lines], place / "unigram", UnigramConfig(vocab_size=700 if segmented else 740, within_words=not segmented)
    )
    return place / "unigram"


@pytest.mark.parametrize("segmented", [False, True])
def test_a_unigram_is_written_with_its_scores(segmented: bool, tmp_path: Path) -> None:
    tokenizer = unigram(tmp_path, segmented)
    source = random_model(tokenizer, tmp_path / "model", "gpt2", **TANH["gpt2"])
    export(source, tmp_path / "model.gguf")
    settings, tensors = read(tmp_path / "model.gguf")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer / "tokenizer.model"))
    pieces = range(processor.get_piece_size())
    assert settings["tokenizer.ggml.tokens"] == [processor.id_to_piece(i) for i in pieces]
    assert settings["tokenizer.ggml.scores"] == [processor.get_score(i) for i in pieces]
    assert len(tensors["token_embd.weight"]) == len(pieces)
    expected = {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": segmented,
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }
    assert {name: settings[name] for name in expected} == expected
    assert "tokenizer.ggml.precompiled_charsmap" not in settings
    assert "28862" in settings["general.description"]
    kinds = settings["tokenizer.ggml.token_type"]
    assert kinds[:3] == [2, 3, 3] and [processor.is_byte(i) for i in pieces] == [kind == 6 for kind in kinds]
    marks = [settings["tokenizer.ggml.tokens"][at] for at, kind in enumerate(kinds) if kind == 4]
    assert marks == (["␛n", "␛s", "␛e"] if segmented else [])


def viterbi(settings: dict[str, Any], text: str) -> list[int]:
    """The ids that llama.cpp finds by a file's tokens, scores and types (llm_tokenizer_ugm_session in llama-vocab.cpp)."""
    tokens, scores = settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.scores"]
    kinds = settings["tokenizer.ggml.token_type"]
    ids = {token: at for at, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind in (1, 4, 5)}
    unknown = settings["tokenizer.ggml.unknown_token_id"]
    lowest = min(score for score, kind in zip(scores, kinds, strict=True) if kind == 1) - 10
    text = text.replace(" ", "▁")
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)] + [(-math.inf, 0, 0)] * len(text)
    for start in range(len(text)):
        for end in range(start + 1, min(start + 17, len(text) + 1)):
            if (found := ids.get(text[start:end])) is not None:
                best[end] = max(best[end], (best[start][0] + scores[found], start, found), key=lambda way: way[0])
        if text[start] not in ids:
            best[start + 1] = max(best[start + 1], (best[start][0] + lowest, start, unknown), key=lambda way: way[0])
    path, end = [], len(text)
    while end:
        _, end, found = best[end]
        path.append(found)
    path.reverse()
    # One <unk> for a run of characters without an entry.
    return [found for before, found in pairwise([-1, *path]) if found != unknown or before != unknown]


def test_the_scores_give_the_ids_of_the_text(tmp_path: Path) -> None:
    """Where no character is unknown: of those, llama.cpp makes <unk>, and not bytes (llama.cpp#28862)."""
    tokenizer = unigram(tmp_path, segmented=False)
    source = random_model(tokenizer, tmp_path / "model", "gpt2", **TANH["gpt2"])
    export(source, tmp_path / "model.gguf")
    settings, _ = read(tmp_path / "model.gguf")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer / "tokenizer.model"))
    compared = 0
    for text in [*TEXTS, *(document.text for document in documents(20, seed=6))]:
        ids = processor.encode(text)
        if not any(processor.is_byte(number) for number in ids):
            assert viterbi(settings, text) == ids
            compared += bool(text)
    assert compared > 25
    unknown = 0
    assert unknown in viterbi(settings, "😀") and unknown not in processor.encode("😀")


def test_a_bpe_of_sentencepiece_is_no_unigram(words: Path, tmp_path: Path) -> None:
    lines = ["早稲田大学で勉強している。"] * 9
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(tmp_path / "bpe"),
        model_type="bpe",
        vocab_size=30,
        minloglevel=2,
    )
    assert sentencepiece_unigram.read(tmp_path / "bpe.model") is None


def test_the_model_of_a_normalizing_unigram(tmp_path: Path) -> None:
    """As published ones are: with a table of replacements, a space before the text, and single spaces."""
    lines = ["早稲田 大学で ＡＢＣを 勉強している。"] * 9
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(tmp_path / "nfkc"),
        vocab_size=25,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece_unigram.read(tmp_path / "nfkc.model")
    assert model is not None and model.adds_prefix and model.removes_extra_whitespaces and len(model.charsmap) > 10**5
    assert model.charsmap in (tmp_path / "nfkc.model").read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "nfkc.model"))
    assert [(entry.piece, entry.score) for entry in model.entries] == [
        (processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())
    ]


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True, "attention_bias": False}])
def test_neox(changes: dict[str, Any], words: Path, tmp_path: Path) -> None:
    more = {"rope_parameters": rope(0.25, 30.0), "use_parallel_residual": False}
    source = random_model(words, tmp_path / "model", "neox", **TANH["neox"], **more, **changes)
    export(source, tmp_path / "model.gguf")
    settings, tensors = read(tmp_path / "model.gguf")
    model = frozen_base.load(source)
    rows = model.config.vocab_size - models.PADDING
    same(tensors["token_embd.weight"], model.gpt_neox.embed_in.weight[:rows])
    same(tensors["output.weight"], model.lm_head.weight[:rows])
    for number, layer in enumerate(model.gpt_neox.layers):
        linear = layer.attention.query_key_value
        # [query, key, value; head, dimension] → [head; query, key, value; dimension]
        undone = tensors[f"blk.{number}.attn_qkv.weight"].reshape(3, 2, 16, 32).swapaxes(0, 1).reshape(96, 32)
        same(undone, linear.weight)
        bias = tensors[f"blk.{number}.attn_qkv.bias"].reshape(3, 2, 16).swapaxes(0, 1).reshape(96)
        same(bias, torch.zeros(96) if linear.bias is None else linear.bias)
        same(tensors[f"blk.{number}.ffn_down.weight"], layer.mlp.dense_4h_to_h.weight)
    expected = {
        "gptneox.rope.dimension_count": 4,
        "gptneox.rope.freq_base": 30.0,
        "gptneox.use_parallel_residual": False,
        "gptneox.feed_forward_length": 64,
    }
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gpt2", {"activation_function": "relu"}, "activation_function is relu; allowed with llama.cpp: gelu_new, "),
        ("gpt2", TANH["gpt2"] | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ("neox", {}, "hidden_act is gelu; allowed with llama.cpp: gelu_new, "),
        ("neox", TANH["neox"] | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rope_type linear"),
    ],
)  # fmt: skip
def test_what_llama_cpp_cannot_do_is_refused(
    family: str, changes: dict[str, Any], message: str, words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = random_model(words, tmp_path / "model", family, **changes)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["gguf", "export", str(source), "-o", str(tmp_path / "model.gguf")])
    said = capsys.readouterr().err
    assert ended.value.code == 1 and message in said and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_failure_leaves_the_earlier_file(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random_model(words, tmp_path / "model", "gpt2", **TANH["gpt2"])
    target = tmp_path / "model.gguf"
    target.write_bytes(b"earlier")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", fail)
    with pytest.raises(OSError, match="No space left"):
        export(source, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.gguf"]
    assert target.read_bytes() == b"earlier"


def test_a_weight_in_half_precision_is_written_exactly(words: Path, tmp_path: Path) -> None:
    source = random_model(words, tmp_path / "model", "gpt2", **TANH["gpt2"])
    frozen_base.load(source).bfloat16().save_pretrained(source)
    export(source, tmp_path / "model.gguf")
    _, tensors = read(tmp_path / "model.gguf")
    weights = frozen_base.load(source)
    assert weights.dtype == torch.bfloat16
    found, expected = tensors["position_embd.weight"], weights.transformer.wpe.weight.float().numpy()
    np.testing.assert_array_equal(found, expected)


def test_the_output_cannot_be_the_input(words: Path, tmp_path: Path) -> None:
    source = random_model(words, tmp_path / "model", "gpt2", **TANH["gpt2"])
    with pytest.raises(CourseError, match="is the input"):
        export(source, source / "model.gguf")
    assert gguf_export.BYTE.fullmatch("<0xE3>") and not gguf_export.BYTE.fullmatch("<0xe3>x")

"""GGUF: every number of the model, llama.cpp's layout and settings, the vocabulary, and refusals that leave nothing behind."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from course_lib import cli
from course_lib.errors import CourseError
from course_lib.models import frozen_base
from course_lib.serving import gguf_export
from course_lib.serving.gguf_export import export

from tests.pretrain import models
from tests.serving.test_ct2 import random_model, rope

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

"""Conversion of weights: what does not fit is named with its value, and nothing is written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.checkpoints.training_state import Weights
from course_lib.checkpoints.weight_files import converted
from course_lib.errors import CourseError
from course_lib.generation.prefix_cache import Shape
from course_lib.gptsan.import_tf import import_tf
from course_lib.models.causal import model_config
from course_lib.models.config import ModelConfig
from course_lib.prefix import files
from course_lib.pretrain.export import _build
from course_lib.pretrain.megatron import convert
from course_lib.serving import ct2
from safetensors.torch import load_file, save_file

from tests.gptsan import bundle_writer
from tests.prefix import bases
from tests.pretrain import megatron_writer as writer

FOLDER = Path("model")


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (1e6, torch.float16, "w has values (the first one is 1000000) above 65504 in float16"),
        (-65520.0, torch.float16, "w has values (the first one is -65520) above 65504 in float16"),
        (3.4e38, torch.bfloat16, "w has values (the first one is 3.4e+38) above 3.3895e+38 in bfloat16"),
        (float("nan"), torch.float16, "w has values that are not finite, the first one is nan"),
        (float("-inf"), torch.float32, "w has values that are not finite, the first one is -inf"),
    ],
)
def test_a_number_that_does_not_fit_is_named(value: float, dtype: torch.dtype, said: str) -> None:
    with pytest.raises(CourseError) as error:
        converted(FOLDER, "w", torch.tensor([1.0, value]), dtype)
    assert str(error.value).startswith(f"model: {said}")


@pytest.mark.parametrize(("value", "dtype"), [(65504.0, torch.float16), (65519.0, torch.float16), (1e-40, torch.float16), (1e38, torch.bfloat16)])  # fmt: skip
def test_a_number_that_fits_is_rounded(value: float, dtype: torch.dtype) -> None:
    assert torch.equal(converted(FOLDER, "w", torch.tensor([value]), dtype), torch.tensor([value]).to(dtype))
    assert converted(FOLDER, "w", torch.empty(0), dtype).dtype == dtype


def test_integers_are_refused() -> None:
    with pytest.raises(CourseError, match="w is stored as int8; allowed: "):
        converted(FOLDER, "w", torch.zeros(2, dtype=torch.int8), torch.float32)


def edited(folder: Path, file: str, name: str, value: float) -> Path:
    path = next(folder.glob(file))
    state = torch.load(path, weights_only=False)
    state[name][(0,) * state[name].ndim] = value
    torch.save(state, path)
    return folder


QKV = "self_attention.query_key_value.weight"


@pytest.mark.parametrize(
    ("file", "name", "value", "dtype", "said"),
    [
        ("layer_02-model_01*", QKV, float("nan"), None, "attn.c_attn.weight has values that are not finite"),
        ("layer_03-model_00*", "mlp.dense_h_to_4h.weight", 1e6, "fp16", r"mlp.c_fc.weight has values .*1000000\) above 65504"),
        ("layer_02-model_01*", "input_layernorm.weight", 0.5, None, "layers.0.input_layernorm.weight of tensor rank 1"),
        ("layer_03-model_01*", "mlp.dense_4h_to_h.bias", 0.5, None, "layers.1.mlp.dense_4h_to_h.bias of tensor rank 1"),
        ("layer_01-model_01*", "position_embeddings.weight", 0.5, None, "position_embeddings.weight of tensor rank 1"),
    ],
)  # fmt: skip
def test_megatron(file: str, name: str, value: float, dtype: None, said: str, tmp_path: Path) -> None:
    source = edited(writer.pipeline(writer.model(), tmp_path / "run", ranks=2), file, name, value)
    with pytest.raises(CourseError, match=said):
        convert(source, tmp_path / "model", dtype=dtype)
    assert not (tmp_path / "model").exists()


def test_megatron_of_parts_that_differ_is_right(tmp_path: Path) -> None:
    source = writer.pipeline(writer.model(), tmp_path / "run", ranks=2)
    # A part that only this rank has, and a number that fp32 can express.
    edited(source, "layer_02-model_01*", QKV, 1e6)
    assert convert(source, tmp_path / "model")["tensor_ranks"] == 2


def test_megatron_with_another_output_layer(tmp_path: Path) -> None:
    source = writer.whole(writer.model(), tmp_path / "run")
    path = source / "mp_rank_00_model_states.pt"
    state = torch.load(path, weights_only=False)
    embedding = state["module"]["language_model"]["embedding"]["word_embeddings"]["weight"]
    state["module"]["word_embeddings_for_head"] = {"weight": embedding.clone()}
    torch.save(state, path)
    assert convert(source, tmp_path / "model")
    state["module"]["word_embeddings_for_head"]["weight"][0, 0] += 1
    torch.save(state, path)
    with pytest.raises(CourseError, match="the output layer of tensor rank 0 is not the copy"):
        convert(source, tmp_path / "other")


@pytest.mark.parametrize(("value", "said"), [(np.nan, "not finite, the first one is nan"), (np.inf, "not finite, the first one is inf")])  # fmt: skip
def test_tensorflow(value: float, said: str, tmp_path: Path) -> None:
    values = bundle_writer.random_variables()
    values["model/wpe"].flat[3] = value
    source = bundle_writer.write_original(tmp_path / "tf", values)
    with pytest.raises(CourseError, match=f"model/wpe has values that are {said}"):
        import_tf(source, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    values["model/wpe"] = np.zeros(values["model/wpe"].shape, "i8")
    source = bundle_writer.write_original(tmp_path / "ints", values)
    with pytest.raises(CourseError, match="model/wpe is stored as int64"):
        import_tf(source, tmp_path / "model")


def test_ctranslate2(tmp_path: Path) -> None:
    folder = bases.folder(tmp_path, "gpt2")
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.1.mlp.c_fc.weight"][0, 0] = 1e6
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CourseError, match=r"h.1.mlp.c_fc.weight has values .*1000000\) above 65504"):
        ct2.export(folder, tmp_path / "ct2", "float16")
    assert not (tmp_path / "ct2").exists()
    # int8 scales each row, and bfloat16 ends where float32 does.
    for format in ("int8_float16", "bfloat16"):
        ct2.export(folder, tmp_path / format, format)
    weights["transformer.ln_f.bias"][0] = 1e6
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CourseError, match="transformer.ln_f.bias has values"):
        ct2.export(folder, tmp_path / "ct2", "int8_float16")


def test_export_of_a_run() -> None:
    shape = model_config(ModelConfig(vocab_size=8, hidden_size=4, num_layers=1, num_attention_heads=1, max_position_embeddings=4))  # fmt: skip
    with torch.device("cpu"):
        from transformers import AutoModelForCausalLM

        state = AutoModelForCausalLM.from_config(shape).state_dict()
    found = Weights(state, "fp32 master weights", "fp16")
    assert _build(shape, found, torch.float16, FOLDER).dtype == torch.float16
    state["transformer.h.0.mlp.c_fc.bias"][0] = 70_000
    with pytest.raises(CourseError, match=r"model: transformer.h.0.mlp.c_fc.bias has values .*70000\) above 65504"):
        _build(shape, replace(found, tensors=state), torch.float16, FOLDER)


def test_a_prefix_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    values = torch.full((2, 2 * 3 * 32), float("nan"))
    with pytest.raises(CourseError, match="prefix t has values that are not finite"):
        files.write(files.Prefix(values, "t", "", Shape(3, 4, 8)), tmp_path / "p.safetensors")
    assert not (tmp_path / "p.safetensors").exists()

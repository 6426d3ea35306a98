import json
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.errors import CourseError, UsageError
from course_lib.pretrain.megatron import convert
from course_lib.subword import folder as tokenizer_folder
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel

from tests.pretrain import megatron_writer as writer

EMBEDDING, LAYER = (f"layer_{n:02d}-model_00-model_states.pt" for n in (1, 3))
META = "mp_rank_00_model_states.pt"


@pytest.fixture(scope="module")
def model() -> GPT2LMHeadModel:
    return writer.model()


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    words = ["<unk>", "<s>", "</s>", *(f"word{n}" for n in range(3, 300))]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer_folder.save(made, tokenizer_folder.Preparation(segmented=True, marked=True), folder)
    return folder


def _same(folder: Path, model: GPT2LMHeadModel, dtype: torch.dtype = torch.float32) -> None:
    both: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    loaded, info = both
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert loaded.dtype == dtype
    weights = loaded.state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(weights[name], value.to(dtype)), name


def _edit(file: Path, changes: dict[str, object]) -> None:
    """Changes entries of a .pt file; None takes one out."""
    # Not safe_load: its tensors are the file, about to be replaced.
    state = torch.load(file, weights_only=False) | changes
    torch.save({key: value for key, value in state.items() if value is not None}, file)


@pytest.mark.parametrize(("ranks", "form"), [(1, "old"), (4, "new"), (2, "whole")])
def test_back_bit_for_bit(model, tokenizer, tmp_path, ranks, form):
    if form == "whole":
        step = writer.whole(model, tmp_path / "save", ranks)
    else:
        step = writer.pipeline(model, tmp_path / "save", ranks, form)
    report = convert(step, tmp_path / "out", tokenizer)
    _same(tmp_path / "out", model)
    padded = {1: 384, 2: 512, 4: 512}[ranks]
    assert (report["rows"], report["vocabulary"], report["tensor_ranks"]) == (padded, 300, ranks)
    assert report["parameters"] == model.num_parameters()


def test_layers_beyond_nine_stay_in_order(tokenizer, tmp_path):
    model = writer.model(n_layer=12)
    for number, write in enumerate((writer.pipeline, writer.whole)):
        convert(write(model, tmp_path / str(number)), tmp_path / "out", tokenizer)
        _same(tmp_path / "out", model)


def test_config_and_tokenizer(model, tokenizer, tmp_path):
    convert(writer.pipeline(model, tmp_path / "save", 2), tmp_path / "out", tokenizer)
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    config = loaded.config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert (config.vocab_size, config.n_positions, config.n_inner) == (300, 12, 24)
    assert (config.embd_pdrop, config.resid_pdrop, config.attn_pdrop) == (0.0, 0.0, 0.05)
    assert (config.layer_norm_epsilon, config.initializer_range) == (1e-6, 0.006)
    assert loaded.generation_config.eos_token_id == 2
    assert tokenizer_folder.load(tmp_path / "out").preparation.segmented
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == 300
    assert loaded.generate(torch.tensor([[1, 5]]), max_new_tokens=4, do_sample=False).shape[1] <= 6


@pytest.mark.parametrize(
    ("said", "activation"),
    [
        ({"bias_gelu_fusion": True}, "gelu_new"),
        ({"bias_gelu_fusion": False}, "gelu"),
        ({"bias_gelu_fusion": False, "openai_gelu": True}, "gelu_new"),
        ({"bias_gelu_fusion": True, "onnx_safe": True}, "gelu"),
    ],
)
def test_activation(model, tmp_path, said, activation):
    convert(writer.whole(model, tmp_path / "save", **said), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["activation_function"] == activation


def test_dtype_stays_or_is_as_told(tokenizer, tmp_path):
    half = writer.model().to(torch.bfloat16)
    step = writer.pipeline(half, tmp_path / "save", 2)
    assert convert(step, tmp_path / "kept", tokenizer)["dtype"] == "bfloat16"
    _same(tmp_path / "kept", half, torch.bfloat16)
    convert(step, tmp_path / "wide", tokenizer, "fp32")
    _same(tmp_path / "wide", half)


def test_embedding_in_fp32_keeps_its_bits(tokenizer, tmp_path):
    mixed = writer.model().to(torch.bfloat16)
    mixed.transformer.wte.to(torch.float32).weight.data.normal_()
    convert(writer.pipeline(mixed, tmp_path / "save", 2), tmp_path / "out", tokenizer)
    _same(tmp_path / "out", mixed)


def test_vocabulary(model, tokenizer, tmp_path):
    step = writer.pipeline(model, tmp_path / "save")
    assert convert(step, tmp_path / "padded")["vocabulary"] == 384
    for size in (290, 1500):
        other = writer.pipeline(writer.model(vocab_size=size), tmp_path / str(size), multiple=1)
        with pytest.raises(UsageError, match=f"--tokenizer: has 300 entries, the checkpoint {size}"):
            convert(other, tmp_path / "out", tokenizer)
    assert not (tmp_path / "out").exists()


def test_which_step(model, tokenizer, tmp_path):
    save = tmp_path / "save"
    writer.pipeline(model, save)
    convert(save, tmp_path / "out", tokenizer)
    _same(tmp_path / "out", model)
    with pytest.raises(CourseError, match="tokenizer"):
        convert(save, tmp_path / "other", tmp_path / "none")
    (save / "latest").write_text("global_step300")
    with pytest.raises(CourseError, match="global_step300"):
        convert(save, tmp_path / "out")
    with pytest.raises(CourseError, match="no Megatron-DeepSpeed checkpoint"):
        convert(tmp_path / "out", tmp_path / "other")


def test_features_refused_by_the_arguments(model, tmp_path):
    with pytest.raises(CourseError, match="global_step100: trained with swiglu=True, which GPT-2"):
        convert(writer.pipeline(model, tmp_path / "save", swiglu=True), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", [{"args": None}, {"checkpoint_version": 1.0}])
def test_without_arguments_or_of_an_older_version(model, tmp_path, change):
    step = writer.whole(model, tmp_path / "save")
    _edit(step / META, change)
    with pytest.raises(CourseError, match="training arguments and checkpoint_version 2 or above"):
        convert(step, tmp_path / "out")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (EMBEDDING, {"position_embeddings.weight": None}, "position_embeddings.weight missing"),
        (EMBEDDING, {"word_embeddings.norm.weight": torch.ones(16)}, "no place for embedding.word_embeddings.norm"),
        (LAYER, {"mlp.dense_h_to_4h.weight": torch.ones(48, 16)}, r"has shape \(48, 16\), expected \(24, 16\)"),
        (LAYER, {"input_layernorm.bias": None}, "input_layernorm.bias missing"),
    ],
)
def test_what_a_checkpoint_must_hold(model, tmp_path, file, changes, message):
    step = writer.pipeline(model, tmp_path / "save")
    _edit(step / file, changes)
    with pytest.raises(CourseError, match=message):
        convert(step, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_layer_files(model, tmp_path):
    step = writer.pipeline(model, tmp_path / "save", 2)
    (step / "layer_03-model_01-model_states.pt").unlink()
    with pytest.raises(CourseError, match="rank 1: layers.1.input_layernorm.bias"):
        convert(step, tmp_path / "out")
    for file in step.glob("layer_*-model_01-*"):
        file.unlink()
    with pytest.raises(CourseError, match=r"tensor ranks \[0\]; expected: 0 to 1"):
        convert(step, tmp_path / "out")

"""The output layer: every exporter and reader takes the one that transformers takes, whatever the file has."""

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from course_lib.checkpoints import model_folder
from course_lib.generation.config import GenerateConfig
from course_lib.serving import ct2, export, gguf_export, reader
from course_lib.serving.ct2_generate import Ct2Generator
from safetensors.torch import load_file, save_file

from tests.prefix import bases

EMBEDDINGS = {"gpt2": "transformer.wte.weight", "gpt_neox": "gpt_neox.embed_in.weight"}
HEADS = {"gpt2": "lm_head.weight", "gpt_neox": "embed_out.weight"}
IDS = [[5, 9, 12, 7]]
Weights = dict[str, torch.Tensor]


def absent(weights: Weights, embedding: str, head: str) -> None:
    weights.pop(head, None)


def equal(weights: Weights, embedding: str, head: str) -> None:
    weights[head] = weights[embedding].clone()


def different(weights: Weights, embedding: str, head: str) -> None:
    generator = torch.Generator().manual_seed(7)
    weights[head] = weights[embedding] + torch.randn(weights[embedding].shape, generator=generator)


def alone(weights: Weights, embedding: str, head: str) -> None:
    weights[head] = weights.pop(embedding)


def model(parent: Path, family: str, tied: bool, change: Callable[[Weights, str, str], None]) -> Path:
    folder = bases.folder(parent, family)
    config = model_folder.read_config(folder)
    config.tie_word_embeddings = tied
    if family == "gpt_neox":
        # CTranslate2 and llama.cpp compute GELU by tanh.
        config.hidden_act = "gelu_pytorch_tanh"
    config.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    change(weights, EMBEDDINGS[family], HEADS[family])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("family", bases.FAMILIES)
@pytest.mark.parametrize(
    ("tied", "change"),
    [(True, absent), (True, equal), (True, different), (True, alone), (False, equal), (False, different)],
)
def test_all_take_the_output_layer_of_transformers(family: str, tied: bool, change: Callable[[Weights, str, str], None], tmp_path: Path) -> None:  # fmt: skip
    folder = model(tmp_path, family, tied, change)
    ours = model_folder.load_model(folder)
    with torch.no_grad():
        right = ours(torch.tensor(IDS)).logits
    export.export(folder, tmp_path / "ft")
    with torch.no_grad():
        assert torch.equal(reader.load(tmp_path / "ft").model(torch.tensor(IDS)).logits, right)
    ct2.export(folder, tmp_path / "ct2")
    greedy = GenerateConfig(strategy="greedy", max_new_tokens=1)
    found = Ct2Generator(tmp_path / "ct2", 1).continue_ids(IDS, greedy)[0][0]
    known = len(model_folder.load_tokenizer(folder))
    assert found == [int(right[0, -1, :known].argmax())]
    gguf_export.export(folder, tmp_path / "model.gguf")
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    written = torch.tensor(tensors.get("output.weight", tensors["token_embd.weight"]).copy())
    assert torch.equal(written, ours.lm_head.weight[: len(written)])


def test_an_output_layer_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = model(tmp_path, "gpt2", False, absent)
    for read in (lambda: model_folder.load_model(folder), lambda: export.export(folder, tmp_path / "ft")):
        with pytest.raises(Exception, match="lm_head.weight"):
            read()

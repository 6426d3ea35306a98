"""Writes a GPT-2 as Megatron-DeepSpeed would have saved it: the inverse of course_lib.pretrain.megatron."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

FIRST_LAYER = {"new": 2, "old": 3}  # number of the first transformer layer's file
NORM_AFTER = {"new": 0, "old": 1}  # numbers left out between the last layer and the norm
State = dict[str, torch.Tensor]
Split = Callable[[torch.Tensor], torch.Tensor]


def model(**changes: Any) -> Any:
    """A tiny GPT-2 whose every weight is random, norms and biases too."""
    sizes = {"vocab_size": 300, "n_positions": 12, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_inner": 24}
    ends = {"bos_token_id": None, "eos_token_id": None}
    torch.manual_seed(0)
    made = GPT2LMHeadModel(GPT2Config(**sizes | ends | changes))
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_()
    return made.eval()


def arguments(source: GPT2LMHeadModel, ranks: int, **changes: Any) -> Namespace:
    """The training arguments that a checkpoint of the model carries."""
    config = source.config
    return Namespace(
        **{
            "num_layers": config.n_layer,
            "num_attention_heads": config.n_head,
            "tensor_model_parallel_size": ranks,
            "make_vocab_size_divisible_by": 128,
            "bias_gelu_fusion": True,
            "openai_gelu": False,
            "onnx_safe": None,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.05,
            "layernorm_epsilon": 1e-6,
            "init_method_std": 0.006,
            "params_dtype": torch.float16,
        }
        | changes
    )


def pipeline(source: GPT2LMHeadModel, save: Path, ranks: int = 1, numbering: str = "new", multiple: int = 128, **changes: Any) -> Path:  # fmt: skip
    """Layer files. Returns the step folder."""
    folder = _step(save)
    first = FIRST_LAYER[numbering]
    norm = first + source.config.n_layer + NORM_AFTER[numbering]
    for rank in range(ranks):
        _meta(folder / f"mp_rank_{rank:02d}_model_states.pt", source, ranks, changes, module=None)
        embedding, layers, final = parts(source, rank, ranks, multiple)
        for index, state in {1: embedding, **dict(enumerate(layers, start=first)), norm: final}.items():
            torch.save(state, folder / f"layer_{index:02d}-model_{rank:02d}-model_states.pt")
    return folder


def whole(source: GPT2LMHeadModel, save: Path, ranks: int = 1, **changes: Any) -> Path:
    """One file per rank, as --no-pipeline-parallel saves."""
    folder = _step(save)
    for rank in range(ranks):
        module = _nested(source, rank, ranks)
        _meta(folder / f"mp_rank_{rank:02d}_model_states.pt", source, ranks, changes, module=module)
    return folder


def parts(source: GPT2LMHeadModel, rank: int, ranks: int, multiple: int = 128) -> tuple[State, list[State], State]:
    """Embedding, layers and final norm as one tensor rank holds them, the vocabulary padded with noise."""
    weights = source.transformer.state_dict()
    heads = source.config.n_head

    def whole(value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    def rows(value: torch.Tensor) -> torch.Tensor:
        return value.chunk(ranks, dim=0)[rank].clone()

    def columns(value: torch.Tensor) -> torch.Tensor:
        return value.chunk(ranks, dim=1)[rank].clone()

    def qkv(value: torch.Tensor) -> torch.Tensor:
        split = value.unflatten(0, (3, heads, -1)).chunk(ranks, dim=1)[rank]
        return split.movedim(0, 1).flatten(0, 2).clone()

    # Megatron's module, GPT-2's module, and how tensor ranks split weight and bias.
    modules: tuple[tuple[str, str, Split, Split], ...] = (
        ("input_layernorm", "ln_1", whole, whole),
        ("self_attention.query_key_value", "attn.c_attn", qkv, qkv),
        ("self_attention.dense", "attn.c_proj", columns, whole),
        ("post_attention_layernorm", "ln_2", whole, whole),
        ("mlp.dense_h_to_4h", "mlp.c_fc", rows, rows),
        ("mlp.dense_4h_to_h", "mlp.c_proj", columns, whole),
    )

    def layer(index: int) -> State:
        state = {}
        for theirs, ours, weight, bias in modules:
            state[f"{theirs}.weight"] = weight(weights[f"h.{index}.{ours}.weight"].t())
            state[f"{theirs}.bias"] = bias(weights[f"h.{index}.{ours}.bias"])
        return state

    words = weights["wte.weight"]
    padding = torch.randn(-len(words) % (multiple * ranks), words.shape[1], generator=torch.Generator().manual_seed(1))
    embedding = {
        "word_embeddings.weight": rows(torch.cat([words, padding.to(words.dtype)])),
        "position_embeddings.weight": weights["wpe.weight"].clone(),
    }
    final = {kind: weights[f"ln_f.{kind}"].clone() for kind in ("weight", "bias")}
    return embedding, [layer(index) for index in range(source.config.n_layer)], final


def _nested(source: GPT2LMHeadModel, rank: int, ranks: int) -> dict[str, Any]:
    embedding, layers, final = parts(source, rank, ranks)
    inner = {f"layers.{index}.{name}": value for index, state in enumerate(layers) for name, value in state.items()}
    inner |= {f"final_layernorm.{name}": value for name, value in final.items()}
    nested = {name.split(".")[0]: {"weight": value} for name, value in embedding.items()}
    return {"language_model": {"embedding": nested, "encoder": inner}}


def _step(save: Path) -> Path:
    folder = save / "global_step100"
    folder.mkdir(parents=True)
    (save / "latest").write_text(folder.name)
    return folder


def _meta(file: Path, source: GPT2LMHeadModel, ranks: int, changes: dict[str, Any], **more: Any) -> None:
    arguments_ = arguments(source, ranks, **changes)
    state = {"args": arguments_, "iteration": 100, "optimizer": None, "dp_world_size": 1, "checkpoint_version": 3.0}
    torch.save(state | more, file)

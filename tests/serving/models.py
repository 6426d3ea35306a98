"""Tiny models for the tests of exports, and their folders by hand: NumPy and the reference's words, none of our code."""

from pathlib import Path

import numpy as np
import torch
from course_lib.prefix.files import Prefix
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

VOCABULARY, HIDDEN, LAYERS, HEADS, INNER, POSITIONS, START, END = 43, 16, 2, 4, 40, 24, 2, 3
NUMPY = {"fp32": np.float32, "fp16": np.float16}
FAMILIES = ("sequential", "parallel", "gpt2")


def build(family: str, seed: int = 0, **changes):
    """A model with random weights, biases too."""
    torch.manual_seed(seed)
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(**{
            "vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS,
            "bos_token_id": START, "eos_token_id": END,
        } | changes))  # fmt: skip
    else:
        model = GPTNeoXForCausalLM(GPTNeoXConfig(**{
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "intermediate_size": INNER, "use_parallel_residual": family == "parallel", "bos_token_id": START, "eos_token_id": END,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        } | changes))  # fmt: skip
    for weight in model.parameters():
        weight.data.normal_(0, 0.3)
    return model.eval()


def save(model, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def prefixes() -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return {name: torch.randn(length, 2 * LAYERS * HIDDEN) for name, length in (("smile", 3), ("plain", 5))}


def as_task(name: str, values: torch.Tensor | None) -> Prefix:
    return Prefix(torch.empty(0, 0) if values is None else values, name)


def expected_files(model, family: str, ranks: int, dtype: str, divide: bool | None = None) -> dict[str, bytes]:
    """Every file of weights. `divide`: the two biases behind row-parallel products by N (default: where that is right)."""
    neox = family != "gpt2"
    weights = {name: tensor.detach().numpy().astype(NUMPY[dtype]) for name, tensor in model.state_dict().items()}
    base = "gpt_neox." if neox else "transformer."
    files = {"model.wte.bin": weights[base + ("embed_in" if neox else "wte") + ".weight"]}
    if neox:
        files["model.lm_head.weight.bin"] = weights["lm_head.weight"]
    else:
        files["model.wpe.bin"] = weights[base + "wpe.weight"]
    for part in ("weight", "bias"):
        files[f"model.final_layernorm.{part}.bin"] = weights[f"{base}{'final_layer_norm' if neox else 'ln_f'}.{part}"]
    names = (
        ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"), ("attention.query_key_value", "attn.c_attn"),
        ("attention.dense", "attn.c_proj"), ("mlp.dense_h_to_4h", "mlp.c_fc"), ("mlp.dense_4h_to_h", "mlp.c_proj"),
    )  # fmt: skip
    local = HIDDEN // ranks
    for layer in range(LAYERS):
        for name, gpt in names:
            of = f"{base}layers.{layer}.{name}" if neox else f"{base}h.{layer}.{gpt}"
            weight, bias = weights[f"{of}.weight"], weights[f"{of}.bias"]
            at = f"model.layers.{layer}.{name}"
            if "norm" in name:
                files |= {f"{at}.weight.bin": weight, f"{at}.bias.bin": bias}
                continue
            weight = weight.T if neox else weight  # [in, out]
            if name in ("attention.dense", "mlp.dense_4h_to_h"):
                divided = divide if divide is not None else family == "parallel"
                files[f"{at}.bias.bin"] = bias / NUMPY[dtype](ranks) if divided else bias
                rows = len(weight) // ranks
                for rank in range(ranks):
                    files[f"{at}.weight.{rank}.bin"] = weight[rank * rows : (rank + 1) * rows]
                continue
            for rank in range(ranks):
                if name == "mlp.dense_h_to_4h":
                    of_rank = np.arange(rank * len(bias) // ranks, (rank + 1) * len(bias) // ranks)
                else:
                    of_rank = np.array(
                        [_column(neox, part, rank * local + index) for part in range(3) for index in range(local)]
                    )
                files[f"{at}.weight.{rank}.bin"] = weight[:, of_rank]
                files[f"{at}.bias.{rank}.bin"] = bias[of_rank]
        if family == "parallel":
            at = f"model.layers.{layer}"
            files[f"{at}.mlp.attention.bias.sum.bin"] = files[f"{at}.attention.dense.bias.bin"] + files[f"{at}.mlp.dense_4h_to_h.bias.bin"]  # fmt: skip
    return {name: np.ascontiguousarray(array).tobytes() for name, array in files.items()}


def _column(neox: bool, part: int, index: int) -> int:
    """Where the model keeps number `index` (of H) of query, key or value."""
    size = HIDDEN // HEADS
    return (index // size * 3 + part) * size + index % size if neox else part * HIDDEN + index


def expected_prefix(values: torch.Tensor, ranks: int, dtype: str) -> list[bytes]:
    """One file per rank: layer, k/v, head of the rank, position, number in the head."""
    whole = values.numpy().reshape(len(values), LAYERS, 2, HEADS, HIDDEN // HEADS).transpose(1, 2, 3, 0, 4)
    return [np.ascontiguousarray(part, NUMPY[dtype]).tobytes() for part in np.split(whole, ranks, axis=2)]

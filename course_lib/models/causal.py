"""The model of a run: Hugging Face's GPT-2 or GPT-NeoX in the shape of the settings, and what its backward pass computes again."""

import math
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.gpt_neox import modeling_gpt_neox

from course_lib.models.config import ModelConfig

ROTARY_BASE = 10_000  # of the rotary positions' wavelengths, as GPT-NeoX and rinna's models
Shape: TypeAlias = GPT2Config | GPTNeoXConfig
CausalModel: TypeAlias = GPT2LMHeadModel | GPTNeoXForCausalLM


def model_config(model: ModelConfig, begin: int = 1, end: int = 2) -> Shape:
    """The shape as Hugging Face names it. `begin` and `end` are the tokenizer's ids of <s> and </s>. Training pads nothing."""
    return gpt2_config(model, begin, end) if model.architecture == "gpt2" else neox_config(model, begin, end)


def gpt2_config(model: ModelConfig, begin: int = 1, end: int = 2) -> GPT2Config:
    """The shape of a GPT-2; see model_config."""
    return GPT2Config(
        vocab_size=model.vocab_size,
        n_positions=model.max_position_embeddings,
        n_embd=model.hidden_size,
        n_layer=model.num_layers,
        n_head=model.num_attention_heads,
        n_inner=model.ffn_hidden_size,
        activation_function="gelu_pytorch_tanh",  # GELU by tanh, as Megatron and FleetX; gelu_new is the same unfused
        resid_pdrop=model.hidden_dropout_prob,
        embd_pdrop=model.hidden_dropout_prob,
        attn_pdrop=model.attention_probs_dropout_prob,
        initializer_range=model.initializer_range,
        bos_token_id=begin,
        eos_token_id=end,
    )


def neox_config(model: ModelConfig, begin: int = 1, end: int = 2) -> GPTNeoXConfig:
    """The shape of a GPT-NeoX; see model_config. Nothing is learned of positions: max_position_embeddings is what it was trained on."""
    return GPTNeoXConfig(
        vocab_size=model.vocab_size,
        max_position_embeddings=model.max_position_embeddings,
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.num_attention_heads,
        intermediate_size=model.ffn,
        hidden_act="gelu",  # exact
        rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE, "partial_rotary_factor": model.rotary_pct},
        use_parallel_residual=model.use_parallel_residual,
        hidden_dropout=model.hidden_dropout_prob,
        attention_dropout=model.attention_probs_dropout_prob,
        initializer_range=model.initializer_range,
        tie_word_embeddings=False,
        bos_token_id=begin,
        eos_token_id=end,
    )


def build_model(model: ModelConfig, begin: int = 1, end: int = 2) -> CausalModel:
    """A freshly initialised model: Normal(0, initializer_range), the projections into the residual stream divided by √(2·num_layers)."""
    config = model_config(model, begin, end)
    built = AutoModelForCausalLM.from_config(config, attn_implementation=model.attention, dtype=torch.float32)
    if model.architecture == "gpt-neox":  # Hugging Face divides GPT-2's alone
        _divide_projections(built, math.sqrt(2 * model.num_layers))
    if (
        model.attention == "sdpa"
    ):  # samples are not padded: without a mask function of its name, compiled code needs no dense mask
        ALL_ATTENTION_FUNCTIONS.register("sdpa_causal", ALL_ATTENTION_FUNCTIONS["sdpa"])
        built.config._attn_implementation = "sdpa_causal"
    apply_recompute(built, model.recompute)
    return built


def blocks(model: CausalModel) -> Any:
    """The transformer blocks, in order."""
    return model.transformer.h if isinstance(model, GPT2LMHeadModel) else model.gpt_neox.layers


def _divide_projections(model: GPTNeoXForCausalLM, by: float) -> None:
    with torch.no_grad():
        for block in blocks(model):
            for weight in (block.attention.dense.weight, block.mlp.dense_4h_to_h.weight):
                getattr(weight, "ds_tensor", weight).div_(by)  # under ZeRO stage 3 each rank divides its shard


def apply_recompute(model: CausalModel, recompute: str) -> None:
    """Makes the backward pass compute part of each block again instead of keeping it.

    core_attn: QKᵀ, softmax, dropout and ·V; full_attn: the attention with its projections; full: the block.
    """
    if recompute in ("full", "full_attn"):
        for block in blocks(model):
            part = block if recompute == "full" else getattr(block, "attn", None) or block.attention
            part.forward = partial(_again, part.forward)
    elif recompute == "core_attn":
        name = model.config._attn_implementation
        own = modeling_gpt2 if isinstance(model, GPT2LMHeadModel) else modeling_gpt_neox
        core = ALL_ATTENTION_FUNCTIONS.get_interface(name, own.eager_attention_forward)
        again = f"{name}_{model.config.model_type}_again"  # the eager one differs between them
        ALL_ATTENTION_FUNCTIONS.register(again, partial(_again, core))
        if name in ALL_MASK_ATTENTION_FUNCTIONS:  # and the mask that this kernel takes
            ALL_MASK_ATTENTION_FUNCTIONS.register(again, ALL_MASK_ATTENTION_FUNCTIONS[name])
        model.config._attn_implementation = again


def _again(function: Any, *arguments: Any, **named: Any) -> Any:
    """Calls `function`, keeping its inputs only, when gradients are asked for."""
    if not torch.is_grad_enabled():
        return function(*arguments, **named)
    return checkpoint(function, *arguments, use_reentrant=False, **named)

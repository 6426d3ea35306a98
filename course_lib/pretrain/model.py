"""The model of a run: Hugging Face's GPT-2 in the shape of the settings, and what its backward pass computes again."""

from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gpt2.modeling_gpt2 import eager_attention_forward

from course_lib.pretrain.config import ModelConfig


def gpt2_config(model: ModelConfig, begin: int = 1, end: int = 2) -> GPT2Config:
    """The shape as Hugging Face names it. `begin` and `end` are the tokenizer's ids of <s> and </s>. Training pads nothing."""
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


def build_model(model: ModelConfig, begin: int = 1, end: int = 2) -> GPT2LMHeadModel:
    """A freshly initialised GPT-2: Normal(0, initializer_range), the projections into the residual stream divided by √(2·num_layers)."""
    config = gpt2_config(model, begin, end)
    built = AutoModelForCausalLM.from_config(config, attn_implementation=model.attention, dtype=torch.float32)
    if (
        model.attention == "sdpa"
    ):  # samples are not padded: without a mask function of its name, compiled code needs no dense mask
        ALL_ATTENTION_FUNCTIONS.register("sdpa_causal", ALL_ATTENTION_FUNCTIONS["sdpa"])
        built.config._attn_implementation = "sdpa_causal"
    apply_recompute(built, model.recompute)
    return built


def apply_recompute(model: GPT2LMHeadModel, recompute: str) -> None:
    """Makes the backward pass compute part of each block again instead of keeping it.

    core_attn: QKᵀ, softmax, dropout and ·V; full_attn: the attention with its projections; full: the block.
    """
    if recompute in ("full", "full_attn"):
        for block in model.transformer.h:
            part = block if recompute == "full" else block.attn
            part.forward = partial(_again, part.forward)
    elif recompute == "core_attn":
        name = model.config._attn_implementation
        core = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager_attention_forward)
        ALL_ATTENTION_FUNCTIONS.register(f"{name}_again", partial(_again, core))
        if name in ALL_MASK_ATTENTION_FUNCTIONS:  # and the mask that this kernel takes
            ALL_MASK_ATTENTION_FUNCTIONS.register(f"{name}_again", ALL_MASK_ATTENTION_FUNCTIONS[name])
        model.config._attn_implementation = f"{name}_again"


def _again(function: Any, *arguments: Any, **named: Any) -> Any:
    """Calls `function`, keeping its inputs only, when gradients are asked for."""
    if not torch.is_grad_enabled():
        return function(*arguments, **named)
    return checkpoint(function, *arguments, use_reentrant=False, **named)

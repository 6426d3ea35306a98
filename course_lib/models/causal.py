"""Hugging Face GPT-2 and GPT-NeoX models built from settings, and activation recomputation."""

import math
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.gpt_neox import modeling_gpt_neox

from course_lib.models.config import ModelConfig
from course_lib.models.families import BY_ARCHITECTURE, BY_MODEL_TYPE

CausalConfig: TypeAlias = GPT2Config | GPTNeoXConfig
CausalModel: TypeAlias = GPT2LMHeadModel | GPTNeoXForCausalLM


def model_config(model: ModelConfig, begin: int = 1, end: int = 2) -> CausalConfig:
    """Return the transformers configuration for a model's settings; `begin` and `end` are the ids of <s> and </s>."""
    family = BY_ARCHITECTURE[model.architecture]
    return AutoConfig.for_model(family.model_type, **family.hf_values(model), bos_token_id=begin, eos_token_id=end)


def build_model(model: ModelConfig, begin: int = 1, end: int = 2) -> CausalModel:
    """Build a model with random initial weights, Normal(0, initializer_range²), and set up recomputation."""
    config = model_config(model, begin, end)
    built = AutoModelForCausalLM.from_config(config, attn_implementation=model.attention, dtype=torch.float32)
    # Hugging Face divides the projections into the residual stream by √(2·num_layers) for GPT-2 only.
    if model.architecture == "gpt-neox":
        _divide_projections(built, math.sqrt(2 * model.num_layers))
    # Samples are not padded. transformers builds no mask for a kernel whose name has no mask function.
    if model.attention == "sdpa":
        ALL_ATTENTION_FUNCTIONS.register("sdpa_causal", ALL_ATTENTION_FUNCTIONS["sdpa"])
        built.config._attn_implementation = "sdpa_causal"
    apply_recompute(built, model.recompute)
    return built


def blocks(model: CausalModel) -> Any:
    """Return the transformer blocks of a model, in order."""
    return model.get_submodule(BY_MODEL_TYPE[model.config.model_type].blocks)


def _divide_projections(model: GPTNeoXForCausalLM, by: float) -> None:
    """Divide the weights of each block's projections into the residual stream by `by`."""
    with torch.no_grad():
        for block in blocks(model):
            for weight in (block.attention.dense.weight, block.mlp.dense_4h_to_h.weight):
                # Under ZeRO stage 3, each rank divides its own shard, `ds_tensor`.
                getattr(weight, "ds_tensor", weight).div_(by)


def apply_recompute(model: CausalModel, recompute: str) -> None:
    """Make the backward pass recompute part of each block instead of storing its activations (model.recompute)."""
    if recompute in ("full", "full_attn"):
        for block in blocks(model):
            part = block if recompute == "full" else getattr(block, "attn", None) or block.attention
            part.forward = partial(_again, part.forward)
    elif recompute == "core_attn":
        name = model.config._attn_implementation
        modeling = modeling_gpt2 if isinstance(model, GPT2LMHeadModel) else modeling_gpt_neox
        core = ALL_ATTENTION_FUNCTIONS.get_interface(name, modeling.eager_attention_forward)
        # The name includes the model type, because eager attention differs between GPT-2 and GPT-NeoX.
        again = f"{name}_{model.config.model_type}_again"
        ALL_ATTENTION_FUNCTIONS.register(again, partial(_again, core))
        # The new kernel name needs the original kernel's mask function.
        if name in ALL_MASK_ATTENTION_FUNCTIONS:
            ALL_MASK_ATTENTION_FUNCTIONS.register(again, ALL_MASK_ATTENTION_FUNCTIONS[name])
        model.config._attn_implementation = again


def _again(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call `function`; if gradients are enabled, store only its inputs and recompute the rest in the backward pass."""
    if not torch.is_grad_enabled():
        return function(*arguments, **named)
    return checkpoint(function, *arguments, use_reentrant=False, **named)

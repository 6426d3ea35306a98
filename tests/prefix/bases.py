"""Small bases with random weights, of both families; wide weights, so that every position and every prefix shows in the logits."""

from pathlib import Path
from typing import Any

import torch
from course_lib.pretrain import text_codec
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

from tests.pretrain.models import tokenizer

FAMILIES = ("gpt2", "gpt_neox")
VOCABULARY = 50
POSITIONS = 48


def base(family: str, attention: str = "sdpa", rows: int = VOCABULARY, seed: int = 0) -> Any:
    """3 layers, 4 heads of 8, frozen and in eval mode; GPT-NeoX turns a quarter of each head."""
    torch.manual_seed(seed)
    size: dict[str, Any] = {"vocab_size": rows, "max_position_embeddings": POSITIONS, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "bos_token_id": 2, "eos_token_id": 2, "initializer_range": 0.25, "attn_implementation": attention}  # fmt: skip
    if family == "gpt2":
        model: Any = GPT2LMHeadModel(GPT2Config(**size, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1))
    else:
        rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
        model = GPTNeoXForCausalLM(GPTNeoXConfig(**size, intermediate_size=64, rope_parameters=rope))
    return model.requires_grad_(False).eval()


def folder(target: Path, family: str, seed: int = 0) -> Path:
    """A whole model folder, with a tokenizer."""
    words = tokenizer(target)
    base(family, rows=len(text_codec.load(words)) + 3, seed=seed).save_pretrained(words)
    return words

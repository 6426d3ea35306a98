"""Self-attention for GPTSAN: bidirectional within the prefix, causal in the text after it.

The spout adds one key/value slot before all tokens.

Shapes: B sequences of T new tokens; S key/value slots (spout, cached tokens, new tokens); H = d_model = heads · d.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.gptsan.experts import Linear
from course_lib.gptsan.hf_config import GPTSanConfig


def prefix_lm_mask(
    length: int, past: int, device: torch.device, padding: Tensor | None = None, types: Tensor | None = None
) -> Tensor | None:
    """Build the attention mask [B or 1, 1, T, S], or return None if plain causal attention is enough.

    The mask is True where a new token attends to a slot: the slots before the token, the token's own slot and the whole
    prefix, but no padding. A padding token attends to its own slot, because the softmax needs at least one.

    Args:
        length: Number of new tokens (T).
        past: Number of slots before the new tokens: the spout and the cached tokens.
        device: Device for the mask.
        padding: Attention mask [B, S], or [B, S−1] without the spout slot; 0 at padding.
        types: Token types [B, T] or [B, T+1], 1 in the prefix; only the last T columns are used.
    """
    if padding is None and types is None and (past == 0 or length == 1):
        return None
    causal = torch.ones(1, length, past + length, dtype=torch.bool, device=device).tril(past)
    visible = causal
    if types is not None:
        visible = visible | F.pad(types[:, -length:].bool(), (past, 0))[:, None]
    if padding is not None:
        slots = F.pad(padding.bool(), (past + length - padding.shape[1], 0), value=True)
        own_slot = causal.triu(past)
        visible = (visible & slots[:, None]) | own_slot
    return visible[:, None]


class Attention(nn.Module):
    """Multi-head attention without biases, rotary embeddings or dropout."""

    def __init__(self, config: GPTSanConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.q_proj = Linear(config.d_model, config.d_model)
        self.k_proj = Linear(config.d_model, config.d_model)
        self.v_proj = Linear(config.d_model, config.d_model)
        self.out_proj = Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, mask: Tensor | None, spout: Tensor | None, cache: Any) -> Tensor:
        """Compute attention for the new tokens: [B, T, H] → [B, T, H].

        `mask` comes from `prefix_lm_mask`; `spout` [B, 2, heads, 1, d] are key and value of the slot before all tokens;
        `cache` is a transformers key/value cache.
        """
        heads = (*x.shape[:2], self.config.num_heads, -1)
        query, key, value = (p(x).view(heads).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        if spout is not None:
            # [B, heads, 1+T, d]
            key, value = torch.cat([spout[:, 0], key], 2), torch.cat([spout[:, 1], value], 2)
        if cache is not None:
            # [B, heads, S, d]
            key, value = cache.update(key, value, self.layer)
        causal = mask is None and query.shape[2] > 1
        mixed = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        output: Tensor = self.out_proj(mixed.transpose(1, 2).reshape_as(x))
        return output


class SelfAttention(nn.Module):
    """Residual self-attention: x + norm(attention(x)). The norm is applied to the attention output, not to x."""

    def __init__(self, config: GPTSanConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, x: Tensor, *inputs: Any) -> Tensor:
        """Apply the layer: [B, T, H] → [B, T, H]. Takes the arguments of `Attention.forward`."""
        output: Tensor = x + self.norm(self.self_attn(x, *inputs))
        return output

"""Self-attention of GPTSAN: a prefix that sees both ways, text that sees backwards, and the spout as a slot before all tokens.

Shapes: B sequences of T new tokens, S slots to look at (spout, tokens of the cache, new tokens), H = d_model = heads · d.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.experts import Linear


def prefix_lm_mask(
    length: int, past: int, device: torch.device, padding: Tensor | None = None, types: Tensor | None = None
) -> Tensor | None:
    """Which slot each new token sees: [B or 1, 1, T, S], True where it does; None where it is those up to its own.

    A token sees the slots up to its own and all of the prefix (`types` [B, T or T+1] is 1 there; only the last T count), and no
    padding (`padding` [B, S or S−1] is 0 there; S−1 leaves out the spout), which sees itself for the softmax's sake.
    """
    if padding is None and types is None and (past == 0 or length == 1):
        return None
    own = torch.ones(1, length, past + length, dtype=torch.bool, device=device).tril(past)
    visible = own
    if types is not None:
        visible = visible | F.pad(types[:, -length:].bool(), (past, 0))[:, None]
    if padding is not None:
        slots = F.pad(padding.bool(), (past + length - padding.shape[1], 0), value=True)
        visible = visible & slots[:, None] | own.triu(past)
    return visible[:, None]


class Attention(nn.Module):
    """Multi-head attention without biases, rotations or dropout."""

    def __init__(self, config: GPTSanConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.q_proj = Linear(config.d_model, config.d_model)
        self.k_proj = Linear(config.d_model, config.d_model)
        self.v_proj = Linear(config.d_model, config.d_model)
        self.out_proj = Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, mask: Tensor | None, spout: Tensor | None, cache: Any) -> tuple[Tensor, Tensor | None]:
        """[B, T, H] → ([B, T, H], weights [B, heads, T, S] where the implementation is eager).

        `spout` [B, 2, heads, 1, d] is this layer's key and value of the spout; it goes into the cache before the tokens' own.
        """
        heads = (*x.shape[:2], self.config.num_heads, -1)
        query, key, value = (p(x).view(heads).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        if spout is not None:
            key, value = torch.cat([spout[:, 0], key], 2), torch.cat([spout[:, 1], value], 2)  # [B, heads, 1+T, d]
        if cache is not None:
            key, value = cache.update(key, value, self.layer)  # [B, heads, S, d]
        if self.config._attn_implementation == "eager":
            mixed, weights = eager_attention(query, key, value, mask)
        else:
            causal = mask is None and query.shape[2] > 1
            mixed, weights = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal), None
        return self.out_proj(mixed.transpose(1, 2).reshape_as(x)), weights


def eager_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """softmax(q·kᵀ/√d)·v over what the mask leaves: queries [B, heads, T, d] → (the same shape, weights [B, heads, T, S])."""
    if mask is None:
        shape = query.shape[2], key.shape[2]
        mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril(shape[1] - shape[0])
    scores = ((query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)).float()  # scaled first: fp16 ends at 65504
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).to(value.dtype)
    return weights @ value, weights


class SelfAttention(nn.Module):
    """x + norm(attention(x)): the norm is on the branch, before it is added."""

    def __init__(self, config: GPTSanConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, x: Tensor, *given: Any) -> tuple[Tensor, Tensor | None]:
        """As `Attention`."""
        mixed, weights = self.self_attn(x, *given)
        return x + self.norm(mixed), weights

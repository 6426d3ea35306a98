"""Feed-forward layers for GPTSAN: the switch layer routes each token to one of E experts; the extra layer is dense.

Shapes: B sequences of T tokens; H = d_model; E = num_experts; N = number of tokens that an expert processes.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.gptsan.hf_config import GPTSanConfig


class Linear(nn.Linear):
    """Linear layer that stores its initialization parameters: weight Normal(0, std²), bias Normal(0, bias_std²)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False, std: float = 0.02, bias_std: float = 0.0) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.init_std, self.init_bias_std = std, bias_std


class Fp32Linear(Linear):
    """Linear layer without bias that always computes in fp32, regardless of autocast and the dtype of its weight."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: [..., inputs] → [..., outputs] in fp32."""
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.float(), self.weight.float())


class MLP(nn.Module):
    """Two linear layers: an expert has width d_ff, ReLU and no biases; an extra layer width d_ext, swish and biases."""

    def __init__(self, config: GPTSanConfig, extra: bool) -> None:
        super().__init__()
        hidden = config.d_ext if extra else config.d_ff
        self.wi = Linear(config.d_model, hidden, bias=extra, bias_std=0.02)
        self.wo = Linear(hidden, config.d_model, bias=extra, bias_std=0.02)
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network: [..., H] → [..., H]."""
        hidden = F.silu(self.wi(x)) if self.extra else F.relu(self.wi(x))
        output: Tensor = self.wo(hidden)
        return output


class Router(nn.Module):
    """Linear router in fp32, because a small difference between two logits decides which expert gets the token."""

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__()
        self.classifier = Fp32Linear(config.d_model, config.num_experts)
        self.jitter = config.router_jitter_noise

    def forward(self, x: Tensor) -> Tensor:
        """Compute the router logits: [B, T, H] → [B, T, E], in training from an input times noise from 1 ± jitter."""
        if self.training and self.jitter:
            x = x.float() * torch.empty_like(x, dtype=torch.float32).uniform_(1 - self.jitter, 1 + self.jitter)
        logits: Tensor = self.classifier(x)
        return logits


class SwitchMLP(nn.Module):
    """Switch layer: each token's most probable expert, times its probability, so that the router gets a gradient."""

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__()
        self.config = config
        self.router = Router(config)
        self.experts = nn.ModuleDict({f"expert_{e}": MLP(config, extra=False) for e in range(config.num_experts)})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer: [B, T, H] → ([B, T, H], router logits [B, T, E])."""
        logits = self.router(x)
        # Each is [B, T].
        probability, expert = logits.softmax(-1).max(-1)
        # [B·T, 1]
        gate = probability.to(x.dtype).flatten()[:, None]
        # [E, B·T], True where an expert processes a token
        served = within_capacity(expert, self.config, self.training).flatten(0, 1).t()
        # Token indices by expert, in text order, and the number of tokens per expert.
        order, counts = served.nonzero()[:, 1], served.sum(1).tolist()

        # [B·T, H]
        tokens = x.flatten(0, 1)
        # One contiguous [N, H] tensor per expert.
        slices = torch.split(tokens.index_select(0, order), counts)
        # In training or with several ranks, also call experts without tokens. This way, every rank has gradients for
        # the same weights and, under ZeRO-3, gathers the same weights.
        everyone = self.training or torch.distributed.is_initialized()
        pairs = zip(self.experts.values(), slices, strict=True)
        outputs = [network(rows) for network, rows in pairs if everyone or len(rows)]
        computed = torch.cat(outputs) * gate.index_select(0, order)
        return torch.zeros_like(tokens, dtype=computed.dtype).index_copy(0, order, computed).view_as(x), logits


def capacity(config: GPTSanConfig, group: int, training: bool) -> int:
    """Return the maximum number of tokens that an expert processes in a group: a factor times an even share, ≥ 4."""
    factor = config.train_capacity_factor if training else config.eval_capacity_factor
    return max(4, min(group, int(group * factor / config.num_experts)))


def group_count(tokens: int) -> int:
    """Return the number of equal groups of tokens, each with its own capacity, by Mesh TensorFlow's rule on one device.

    It is the smallest divisor of `tokens` that is at least tokens // 1024.
    """
    return next(count for count in range(max(1, tokens // 1024), tokens + 1) if tokens % count == 0)


def within_capacity(expert: Tensor, config: GPTSanConfig, training: bool) -> Tensor:
    """Apply the capacity limit: chosen experts [B, T] → mask [B, T, E], True where an expert processes a token.

    Within a group (see `group_count`), an expert takes tokens in order until it is full.
    """
    chosen = expert[..., None] == torch.arange(config.num_experts, device=expert.device)
    groups = chosen.reshape(group_count(expert.numel()), -1, config.num_experts)
    # For each expert: the number of tokens in the group, up to and including this one, that have chosen it.
    queue = groups.cumsum(1)
    return (groups & (queue <= capacity(config, groups.shape[1], training))).view_as(chosen)


def balance_loss(router_logits: Sequence[Tensor]) -> Tensor:
    """Return the load-balancing loss for logits [B, T, E] of each layer, summed over the layers.

    The loss for a layer is E² · mean over experts of (fraction of tokens that choose the expert · mean probability of
    the expert). It is 1 if all experts are chosen equally often with equal probability.
    """
    # [layers, tokens, E]
    logits = torch.stack(tuple(router_logits)).flatten(1, 2)
    experts = logits.shape[-1]
    # [layers, E]
    share = F.one_hot(logits.argmax(-1), experts).float().mean(1)
    return (experts**2 * (share * logits.softmax(-1).mean(1)).mean(-1)).sum()


class FeedForward(nn.Module):
    """Feed-forward part of a layer: x + norm(mlp(x)), in a switch layer x + norm(experts(x) + tanh(x·W)).

    The soft bypass W also processes the tokens that a full expert drops.
    """

    def __init__(self, config: GPTSanConfig, extra: bool) -> None:
        super().__init__()
        self.mlp = MLP(config, extra) if extra else SwitchMLP(config)
        self.soft_bypass_mlp = None if extra else Linear(config.d_model, config.d_model, std=0.01)
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply the feed-forward part: [B, T, H] → ([B, T, H], router logits [B, T, E], or None in an extra layer)."""
        if self.soft_bypass_mlp is None:
            return x + self.norm(self.mlp(x)), None
        computed, logits = self.mlp(x)
        return x + self.norm(computed + self.soft_bypass_mlp(x).tanh()), logits

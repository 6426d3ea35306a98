"""The feed-forward parts of GPTSAN: a switch layer, which sends each token to one of several experts, and the dense extra layer.

Shapes: B sequences of T tokens, H = d_model, E = num_experts, N tokens that an expert takes.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.gptsan.configuration import GPTSanConfig


class Linear(nn.Linear):
    """A linear layer that remembers its initialisation: weight Normal(0, std), bias Normal(0, bias_std)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False, std: float = 0.02, bias_std: float = 0.0) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.init_std, self.init_bias_std = std, bias_std


class Fp32Linear(Linear):
    """A linear layer that computes in fp32 under any dtype or autocast."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] → fp32 [..., outputs]."""
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.float(), self.weight.float(), None if self.bias is None else self.bias.float())


class MLP(nn.Module):
    """Two linear layers: an expert (ReLU between, no biases, hidden d_ff) or an extra layer's (swish, biases, hidden d_ext)."""

    def __init__(self, config: GPTSanConfig, extra: bool) -> None:
        super().__init__()
        hidden = config.d_ext if extra else config.d_ff
        self.wi = Linear(config.d_model, hidden, bias=extra, bias_std=0.02)
        self.wo = Linear(hidden, config.d_model, bias=extra, bias_std=0.02)
        self.extra, self.dropout = extra, 0.0 if extra else config.dropout_rate

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] → [..., H]."""
        hidden = F.silu(self.wi(x)) if self.extra else F.relu(self.wi(x))
        output: Tensor = self.wo(F.dropout(hidden, self.dropout, self.training))
        return output


class Router(nn.Module):
    """Scores each token for each expert; in fp32, since small differences decide who computes."""

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__()
        self.classifier = Fp32Linear(config.d_model, config.num_experts, bias=config.router_bias)
        self.jitter = config.router_jitter_noise

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] → logits [B, T, E]. In training the input is jittered, so that close calls go either way."""
        if self.training and self.jitter:
            x = x.float() * torch.empty_like(x, dtype=torch.float32).uniform_(1 - self.jitter, 1 + self.jitter)
        logits: Tensor = self.classifier(x)
        return logits


class SwitchMLP(nn.Module):
    """Each token goes to its most probable expert, and counts by that probability, through which the router learns."""

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__()
        self.config = config
        self.router = Router(config)
        self.experts = nn.ModuleDict({f"expert_{e}": MLP(config, extra=False) for e in range(config.num_experts)})

    def forward(self, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[B, T, H] → ([B, T, H], router logits [B, T, E]). `real` [B, T]: False for tokens that no expert shall take."""
        logits = self.router(x)
        probability, expert = logits.softmax(-1).max(-1)  # [B, T] each
        gate = probability.to(x.dtype).flatten()[:, None]  # [B·T, 1]
        order, counts = sorted_by_expert(within_capacity(expert, self.config, self.training, real))

        tokens = x.flatten(0, 1)  # [B·T, H]
        slices = torch.split(tokens.index_select(0, order), counts)  # one contiguous [N, H] per expert
        # Ranks call experts without tokens too: all have gradients for the same weights, and under ZeRO-3 all gather the same.
        everyone = self.training or torch.distributed.is_initialized()
        pairs = zip(self.experts.values(), slices, strict=True)
        outputs = [network(rows) for network, rows in pairs if everyone or len(rows)]
        computed = torch.cat(outputs) * gate.index_select(0, order)
        others = tokens * gate if self.config.overflow == "identity" else torch.zeros_like(tokens)
        return others.to(computed.dtype).index_copy(0, order, computed).view_as(x), logits


def capacity(config: GPTSanConfig, group: int, training: bool) -> int:
    """How many tokens of a group an expert takes."""
    if config.overflow == "identity":
        return config.expert_capacity
    factor = config.train_capacity_factor if training else config.eval_capacity_factor
    return max(4, min(group, int(group * factor / config.num_experts)))


def group_count(tokens: int) -> int:
    """Into how many equal groups the tokens of a forward pass go, of about 1024 each: Mesh TensorFlow's rule, on one device."""
    return next(count for count in range(max(1, tokens // 1024), tokens + 1) if tokens % count == 0)


def within_capacity(expert: Tensor, config: GPTSanConfig, training: bool, real: Tensor | None = None) -> Tensor:
    """The chosen experts [B, T] → who computes what [B, T, E]: True at the chosen one unless it is full; first come, first served."""
    chosen = expert[..., None] == torch.arange(config.num_experts, device=expert.device)
    if real is not None:
        chosen = chosen & real[..., None]
    count = len(chosen) if config.overflow == "identity" else group_count(expert.numel())
    groups = chosen.reshape(count, -1, config.num_experts)
    queue = groups.cumsum(1)  # how many of the group have come to this expert by now
    return (groups & (queue <= capacity(config, groups.shape[1], training))).view_as(chosen)


def sorted_by_expert(kept: Tensor) -> tuple[Tensor, list[int]]:
    """[B, T, E] → (flat token numbers, those of expert 0 first and in order of the text; how many each expert has)."""
    by_expert = kept.flatten(0, 1).t()  # [E, B·T]
    return by_expert.nonzero()[:, 1], by_expert.sum(1).tolist()


def router_losses(router_logits: Sequence[Tensor], real: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(balance loss, z-loss) of the layers' router logits [B, T, E], each summed over the layers; of the tokens `real` [B, T] only.

    Balance: E² · mean over experts of (share of the tokens that choose it · mean probability), 1 where all are even.
    z-loss: mean of logsumexp², which keeps the logits small. Both count choices before capacity cuts any.
    """
    logits = torch.stack(tuple(router_logits))
    logits = logits.flatten(1, 2) if real is None else logits[:, real]  # [layers, tokens, E]
    experts = logits.shape[-1]
    share = F.one_hot(logits.argmax(-1), experts).float().mean(1)  # [layers, E]
    balance = experts**2 * (share * logits.softmax(-1).mean(1)).mean(-1)
    return balance.sum(), logits.logsumexp(-1).square().mean(-1).sum()


class FeedForward(nn.Module):
    """x + norm(mlp(x)); in a switch layer mlp is the experts + tanh(x·W): what a full expert drops passes by the soft bypass W."""

    def __init__(self, config: GPTSanConfig, extra: bool) -> None:
        super().__init__()
        self.mlp = MLP(config, extra) if extra else SwitchMLP(config)
        self.soft_bypass_mlp = None if extra else Linear(config.d_model, config.d_model, std=0.01)
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """[B, T, H] → ([B, T, H], router logits [B, T, E] of a switch layer)."""
        if self.soft_bypass_mlp is None:
            return x + self.norm(self.mlp(x)), None
        computed, logits = self.mlp(x, real)
        return x + self.norm(computed + self.soft_bypass_mlp(x).tanh()), logits

"""What notebook 4a writes by hand, for those that build on it: attention, GPT-2, AdamW, and the training loop.

The names and the arithmetic are those of the notebook's folded cells; tests/pretrain/test_by_hand.py compares them.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from math import cos, pi
from typing import Any, Protocol

import torch
from torch import Tensor, nn

# Standard deviation of the initial weights, and the most positions of a model.
SPREAD, POSITIONS = 0.09, 256


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return what the last tokens read from themselves and all tokens before them.

    Args:
        q: queries [..., new, size].
        k: keys [..., stored + new, size].
        v: values, in the shape of the keys.
    """
    rows, columns = q.shape[-2], k.shape[-2]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    future = torch.ones(rows, columns).triu(1 + columns - rows).bool()
    read: Tensor = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
    return read


class Attention(nn.Module):
    """Causal attention of several heads: [batch, seq, hidden] → the same shape."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the heads read, mixed."""
        batch, seq, hidden = x.shape
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        mixed: Tensor = self.c_proj(attend(q, k, v).transpose(1, 2).reshape(batch, seq, hidden))
        return mixed


class Block(nn.Module):
    """A block of GPT-2, whose attention is `attention(hidden, heads)`: [batch, seq, hidden] → the same shape."""

    def __init__(self, hidden: int, heads: int, inner: int, attention: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn = attention(hidden, heads)
        layers = {"c_fc": nn.Linear(hidden, inner), "act": nn.GELU("tanh"), "c_proj": nn.Linear(inner, hidden)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return x with what attention and the MLP add."""
        x = x + self.attn(self.ln_1(x))
        added: Tensor = x + self.mlp(self.ln_2(x))
        return added


class GPT2(nn.Module):
    """A GPT-2 whose output layer is its embedding: ids [batch, seq] → logits [batch, seq, vocabulary]."""

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        hidden: int,
        layers: int,
        heads: int,
        attention: Callable[[int, int], nn.Module] = Attention,
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        blocks = [Block(hidden, heads, 4 * hidden, attention) for _ in range(layers)]
        self.h, self.ln_f = nn.ModuleList(blocks), nn.LayerNorm(hidden)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Return the logits of tokens whose first one has the position `start`."""
        x: Tensor = self.wte(ids) + self.wpe.weight[start : start + ids.shape[1]]
        for block in self.h:
            x = block(x)
        logits: Tensor = self.ln_f(x) @ self.wte.weight.T
        return logits


def fresh(
    vocabulary: int,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    attention: Callable[[int, int], nn.Module] = Attention,
) -> GPT2:
    """Return a GPT-2 with random weights as 4a.5 draws them."""
    torch.manual_seed(seed)
    model = GPT2(vocabulary, POSITIONS, hidden, layers, heads, attention)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=SPREAD / (2 * layers) ** 0.5 if "c_proj" in name else SPREAD)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
    return model


class Optimizer(Protocol):
    """What `learn` needs of an optimizer."""

    def step(self, rate: float) -> None:
        """Update each weight in place from its gradient, then clear the gradient."""


class AdamW:
    """AdamW that decays matrices only, by PyTorch's."""

    def __init__(
        self, parameters: Iterable[Tensor], beta1: float = 0.9, beta2: float = 0.95, decay: float = 0.1
    ) -> None:
        matrices, others = list[Tensor](), list[Tensor]()
        for weight in parameters:
            (matrices if weight.dim() > 1 else others).append(weight)
        groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, betas=(beta1, beta2))

    def step(self, rate: float) -> None:
        """Update each weight in place from its gradient, then clear the gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss [nats] of logits [batch, seq, vocabulary] and targets [batch, seq]."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def draw(tokens: Tensor, steps: int, seed: int = 0, batch: int = 8, seq: int = 96) -> Tensor:
    """Return the sequences of all steps [steps, batch, seq + 1], each from a random place of the tokens."""
    rng = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(tokens) - seq, (steps, batch), generator=rng)
    return tokens.unfold(0, seq + 1, 1)[starts]


def learn(
    model: Callable[[Tensor], Any], optimizer: Optimizer, batches: Tensor, rate: float, warm_up: int = 20
) -> Iterator[float]:
    """Train on batches [steps, batch, seq + 1] and yield the loss of each: a warm-up, then half a cosine down to 0."""
    steps = len(batches)
    for t, batch in enumerate(batches, 1):
        loss = cross_entropy(model(batch[:, :-1]), batch[:, 1:])
        loss.backward()  # type: ignore[no-untyped-call]
        late = (1 + cos(pi * (t - warm_up) / (steps - warm_up))) / 2 if t > warm_up else 1.0
        optimizer.step(rate * min(t / warm_up, 1) * late)
        yield loss.item()

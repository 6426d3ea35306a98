"""The loop of one page in which Muon was tried on real text, in plain lines: a peer of `train` in losses and speed.

It differs from what was tried where `train` does: the rate follows the steps, all gradients are clipped together, and with
fp32 weights and activations the matrices are orthogonalized in fp32, too.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from course_lib.pretrain.config import PretrainConfig
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_


def train(
    model: Any, batches: Iterable[Tensor], steps: int, settings: PretrainConfig, compiled: bool = False
) -> Iterator[Tensor]:
    """Trains a GPT-2 on batches of ids [rows, length + 1], and yields the loss of each step before its update.

    Of the settings it knows a trapezoid that ends at 0, Muon, AdamW without weight decay, and clipping.
    """
    wanted = settings.optimizer
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[settings.precision.dtype]
    device = next(model.parameters()).device.type
    weights = list(model.parameters())
    by_shape: dict[tuple[int, ...], list[Any]] = {}
    rest = []
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and ".h." in name:
            by_shape.setdefault(tuple(weight.shape), []).append(weight)
        else:
            rest.append(weight)
    momenta = {shape: torch.zeros(len(alike), *shape, device=device) for shape, alike in by_shape.items()}
    adamw = torch.optim.AdamW(
        rest, wanted.lr.max, (wanted.beta1, wanted.beta2), wanted.epsilon, weight_decay=0.0, fused=device == "cuda"
    )
    loss_of = loss_in(model, settings.model.num_attention_heads, dtype)
    if compiled:
        loss_of = torch.compile(loss_of, dynamic=False)

    for step, batch in enumerate(batches, 1):
        rise = min(1, step / steps / wanted.lr.warmup_rate)
        factor = rise * min(1, (1 - step / steps) / wanted.lr.decay_rate)
        loss = loss_of(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        clip_grad_norm_(weights, wanted.grad_clip)
        rate = wanted.muon.lr * factor
        for shape, alike in by_shape.items():
            gradients = torch.stack([weight.grad for weight in alike])
            momentum = momenta[shape]
            momentum.mul_(wanted.muon.momentum).add_(gradients)
            update = gradients.add(momentum, alpha=wanted.muon.momentum)
            if shape[1] == 3 * shape[0]:
                update = newton_schulz(torch.cat(update.split(shape[0], 2), 0), dtype)
                update = torch.cat(update.split(len(alike), 0), 2)
                scale = rate
            else:
                update = newton_schulz(update, dtype)
                scale = rate * max(1, shape[1] / shape[0]) ** 0.5
            for weight, change in zip(alike, update, strict=True):
                weight.data.mul_(1 - rate * wanted.muon.weight_decay).add_(change, alpha=-scale)
                weight.grad = None
        for group in adamw.param_groups:
            group["lr"] = wanted.lr.max * factor
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        yield loss.detach()


def loss_in(model: Any, heads: int, dtype: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the loss of a transformers GPT-2, whose layers are called one by one, as a function of ids and labels."""

    def logits(ids: Tensor) -> Tensor:
        t = model.transformer
        rows, length = ids.shape
        h = t.wte(ids) + t.wpe.weight[:length]
        for block in t.h:
            q, k, v = block.attn.c_attn(block.ln_1(h)).chunk(3, 2)
            q, k, v = (z.view(rows, length, heads, -1).transpose(1, 2) for z in (q, k, v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + block.attn.c_proj(mixed.transpose(1, 2).reshape(rows, length, -1))
            h = h + block.mlp.c_proj(functional.gelu(block.mlp.c_fc(block.ln_2(h)), approximate="tanh"))
        return functional.linear(t.ln_f(h), t.wte.weight)

    def loss(ids: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(ids.device.type, dtype, enabled=dtype != torch.float32):
            found = logits(ids)
        return functional.cross_entropy(found.float().flatten(0, 1), labels.flatten())

    return loss


def newton_schulz(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    x = matrices.to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    tall = x.size(1) > x.size(2)
    x = x.mT if tall else x
    for _ in range(5):
        a = x @ x.mT
        b = -4.7750 * a + 2.0315 * a @ a
        x = 3.4445 * x + b @ x
    return (x.mT if tall else x).float()

"""Measurements on encoded examples: losses with any input to the spout, attention to its slot, and routers' choices."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.gptsan.layouts import NO_TARGET
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.samples import collate

# Examples in a forward pass.
BATCH = 16


@torch.inference_mode()
def token_losses(model: GPTSanForCausalLM, examples: Iterable[dict[str, Any]], spout: Tensor | None = None) -> Tensor:
    """Return the cross-entropy [nats] at each position: [examples, positions], NaN where there is no target.

    `spout` [d_spout] is the input for all examples.
    """
    found = []
    for batch in _batches(model, examples):
        logits, targets = _read(model, batch, spout).logits.float().flatten(0, 1), batch["y"].flatten()
        nats = functional.cross_entropy(logits, targets, ignore_index=NO_TARGET, reduction="none")
        found += [*nats.masked_fill(targets == NO_TARGET, torch.nan).view_as(batch["y"]).cpu()]
    return torch.nn.utils.rnn.pad_sequence(found, batch_first=True, padding_value=torch.nan)


def mean_loss(model: GPTSanForCausalLM, examples: Iterable[dict[str, Any]], spout: Tensor | None = None) -> float:
    """Return the mean cross-entropy [nats per target token]; `spout` [d_spout] is the input for all examples."""
    return token_losses(model, examples, spout).double().nanmean().item()


@torch.inference_mode()
def slot_attention(model: GPTSanForCausalLM, examples: Iterable[dict[str, Any]], spout: Tensor) -> Tensor:
    """Return the share of its attention that each token pays to the spout slot, as a mean over heads and examples.

    The result is [layers, positions], for the positions that all examples have. `spout` [d_spout] is for all of them.
    """
    batch = {name: tensor.to(model.device) for name, tensor in collate(list(examples)).items()}
    length = int((batch["y"] != NO_TARGET).sum(1).min()) + 1
    shares = []

    def keep(attention: Any, inputs: Any) -> None:
        x, slot = inputs[0], inputs[2]
        heads = (*x.shape[:2], attention.config.num_heads, -1)
        query, key = (project(x).view(heads).transpose(1, 2) for project in (attention.q_proj, attention.k_proj))
        scores = query @ torch.cat([slot[:, 0], key], 2).transpose(2, 3) / query.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device=x.device).triu(2)
        shares.append(scores.float().masked_fill(hidden, -torch.inf).softmax(-1)[..., 0].mean((0, 1))[:length].cpu())

    blocks: Any = model.model.blocks
    hooks = [block.self_attn.self_attn.register_forward_pre_hook(keep) for block in blocks]
    try:
        _read(model, batch, spout, logits_to_keep=1)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(shares)


@torch.inference_mode()
def router_logits(model: GPTSanForCausalLM, examples: Iterable[dict[str, Any]]) -> Tensor:
    """Return the router logits [switch layers, positions of all examples in order, experts] without a spout."""
    found = []
    for batch in _batches(model, examples):
        # The logits of the vocabulary are not needed.
        output = _read(model, batch, None, logits_to_keep=1)
        found.append(torch.stack([logits.flatten(0, 1).float().cpu() for logits in output.router_logits]))
    return torch.cat(found, 1)


@contextmanager
def untrained_routers(model: GPTSanForCausalLM, seed: int = 0) -> Iterator[None]:
    """Give the routers new weights from their initial distribution, inside the context only."""
    rng = torch.Generator().manual_seed(seed)
    routers = [module for name, module in model.named_modules() if name.endswith("router.classifier")]
    trained = [router.weight.data for router in routers]
    for router in routers:
        router.weight.data = (torch.randn(router.weight.shape, generator=rng) * router.init_std).to(router.weight)
    try:
        yield
    finally:
        for router, weight in zip(routers, trained, strict=True):
            router.weight.data = weight


def _batches(model: GPTSanForCausalLM, examples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Tensor]]:
    rows = list(examples)
    for start in range(0, len(rows), BATCH):
        yield {name: tensor.to(model.device) for name, tensor in collate(rows[start : start + BATCH]).items()}


def _read(model: GPTSanForCausalLM, batch: dict[str, Tensor], spout: Tensor | None, **options: Any) -> Any:
    vector = None if spout is None else spout.to(model.device).expand(len(batch["x"]), -1)
    return model(batch["x"], spout=vector, use_cache=False, **options)

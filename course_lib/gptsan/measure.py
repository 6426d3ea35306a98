"""Measurements on encoded examples, in small batches: mean loss with any input to the spout, and routers' choices."""

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
def mean_loss(model: GPTSanForCausalLM, examples: Iterable[dict[str, Any]], spout: Tensor | None = None) -> float:
    """Return the mean cross-entropy [nats per target token]; `spout` [d_spout] is the input for all examples."""
    nats, tokens = 0.0, 0
    for batch in _batches(model, examples):
        logits, targets = _read(model, batch, spout).logits.float().flatten(0, 1), batch["y"].flatten()
        nats += functional.cross_entropy(logits, targets, ignore_index=NO_TARGET, reduction="sum").item()
        tokens += int((targets != NO_TARGET).sum())
    return nats / tokens


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
    kept = [router.weight.data for router in routers]
    for router in routers:
        router.weight.data = (torch.randn(router.weight.shape, generator=rng) * router.init_std).to(router.weight)
    try:
        yield
    finally:
        for router, weight in zip(routers, kept, strict=True):
            router.weight.data = weight


def _batches(model: GPTSanForCausalLM, examples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Tensor]]:
    rows = list(examples)
    for start in range(0, len(rows), BATCH):
        yield {name: tensor.to(model.device) for name, tensor in collate(rows[start : start + BATCH]).items()}


def _read(model: GPTSanForCausalLM, batch: dict[str, Tensor], spout: Tensor | None, **options: Any) -> Any:
    vector = None if spout is None else spout.to(model.device).expand(len(batch["x"]), -1)
    return model(batch["x"], spout=vector, use_cache=False, **options)

"""The model that is trained: a frozen base behind a prefix that an encoder gives; or, for comparison, the base alone and whole.

It works the same in this process (single_process_trainer.py) and under DeepSpeed (trainer.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.gptsan.freeze import freeze
from course_lib.prefix import base as bases
from course_lib.prefix.cache import Shape, past
from course_lib.prefix.config import ModelConfig, PrefixConfig
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.warm_start import cache_values, fit

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ENCODER = "encoder."  # begins the names of what is trained


class PrefixModel(nn.Module):
    """Logits of a text behind the encoder's prefix. The base stays in eval mode; without an encoder it is trained itself."""

    def __init__(self, base: Any, encoder: PrefixEncoder | None) -> None:
        super().__init__()
        self.base, self.encoder = base, encoder
        self.shape = Shape.of(base.config)

    def train(self, mode: bool = True) -> "PrefixModel":
        """As of any module, but a frozen base has no dropout."""
        super().train(mode)
        if self.encoder is not None:
            self.base.eval()
        return self

    def forward(self, input_ids: Tensor) -> Tensor:
        """[B, T] → [B, T, V]. Nothing is padded on the left, so positions and mask are those that the base makes itself."""
        cache = None
        if self.encoder is not None:
            rows = self.encoder()
            cache, _ = past([rows] * len(input_ids), self.shape, self.base.dtype, input_ids.device, grows=False)
        logits: Tensor = self.base(input_ids=input_ids, past_key_values=cache, use_cache=False).logits
        return logits


def build(settings: PrefixConfig) -> PrefixModel:
    """The model of a run before its warm start: the base in the format of training, the encoder in fp32."""
    model = settings.model
    assert model.base
    base = bases.load(model.base, DTYPES[settings.precision.dtype], model.attention)
    if model.recompute == "full":
        recompute(base)
    if model.method == "full":
        return PrefixModel(base.requires_grad_(True), None)
    torch.manual_seed(settings.engine.seed)  # whatever loading the base has drawn
    built = PrefixModel(base, new_encoder(model, Shape.of(base.config)))
    freeze(built, {name for name, _ in built.named_parameters() if not name.startswith(ENCODER)})
    return built


def new_encoder(model: ModelConfig, shape: Shape) -> PrefixEncoder:
    """The encoder of the settings, not yet trained."""
    return PrefixEncoder(
        model.length, shape.width, model.input_dim, model.hidden_dim, model.dropout, model.method == "mlp"
    )


def recompute(base: Any) -> None:
    """Lets the backward pass compute each block again. (transformers' own way would drop the prefix.)"""
    blocks = base.transformer.h if base.config.model_type == "gpt2" else base.gpt_neox.layers
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def warm_start(model: PrefixModel, settings: ModelConfig) -> list[float]:
    """Fits a new prefix to what the base computes for the ids 0, 1, …; returns the errors of the fit. The same on every rank."""
    if model.encoder is None or not settings.warm_start_steps:
        return []
    with _gathered(model.base):
        target = cache_values(model.base, settings.length)
    errors = fit(model.encoder, target, settings.warm_start_steps, settings.warm_start_lr)
    model.zero_grad()  # the fit's last gradients are none of the first step's
    return errors


@contextmanager
def _gathered(base: nn.Module) -> Iterator[None]:
    """While open, a base that ZeRO-3 has cut up computes: each part is put together for its own forward pass only."""
    if not any(hasattr(parameter, "ds_id") for parameter in base.parameters()):
        yield
        return
    from deepspeed.runtime.zero.partition_parameters import GatheredParameters

    handles = []
    for part in base.modules():
        if own := list(part.parameters(recurse=False)):
            held = GatheredParameters(own)
            handles.append(part.register_forward_pre_hook(lambda *_, held=held: held.__enter__()))
            handles.append(part.register_forward_hook(lambda *_, held=held: held.__exit__(None, None, None)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

"""The model that is trained: a frozen base with an encoder's prefix or, for comparison, the whole base by itself.

single_process_trainer.py trains this model in the current process, trainer.py under DeepSpeed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.generation.prefix_cache import Shape, past
from course_lib.gptsan.freeze import freeze
from course_lib.models import frozen_base
from course_lib.models.causal import blocks
from course_lib.prefix.config import ModelConfig, PrefixConfig
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.warm_start import cache_values, fit

# The names of the trained parameters start with this.
ENCODER = "encoder."


class PrefixModel(nn.Module):
    """Model that returns the logits of a text placed after the encoder's prefix.

    The base stays in eval mode. Without an encoder, the base itself is trained.
    """

    def __init__(self, base: Any, encoder: PrefixEncoder | None) -> None:
        super().__init__()
        self.base, self.encoder = base, encoder
        self.shape = Shape.of(base.config)

    def train(self, mode: bool = True) -> "PrefixModel":
        """Set the training mode as in any module, but keep a frozen base in eval mode, without dropout."""
        super().train(mode)
        if self.encoder is not None:
            self.base.eval()
        return self

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the logits [batch, seq, vocabulary size] of `input_ids` [batch, seq].

        There is no padding on the left, so the position ids and attention mask that the base makes itself are correct.
        """
        cache = None
        if self.encoder is not None:
            rows = self.encoder()
            cache, _ = past([rows] * len(input_ids), self.shape, self.base.dtype, input_ids.device, grows=False)
        logits: Tensor = self.base(input_ids=input_ids, past_key_values=cache, use_cache=False).logits
        return logits


def build(settings: PrefixConfig) -> PrefixModel:
    """Return the model of a run before its warm start: the base in the run's number format, the encoder in fp32."""
    model = settings.model
    assert model.base
    base = frozen_base.load(model.base, TORCH[settings.precision.dtype], model.attention)
    if model.recompute == "full":
        recompute(base)
    if model.method == "full":
        return PrefixModel(base.requires_grad_(True), None)
    # Loading the base may have drawn random numbers.
    torch.manual_seed(settings.engine.seed)
    built = PrefixModel(base, new_encoder(model, Shape.of(base.config)))
    freeze(built, {name for name, _ in built.named_parameters() if not name.startswith(ENCODER)})
    return built


def new_encoder(model: ModelConfig, shape: Shape) -> PrefixEncoder:
    """Return an untrained encoder with the sizes in the settings."""
    return PrefixEncoder(
        model.length, shape.width, model.input_dim, model.hidden_dim, model.dropout, model.method == "mlp"
    )


def recompute(base: Any) -> None:
    """Make the backward pass recompute each block. The gradient checkpointing of transformers would drop the prefix."""
    for block in blocks(base):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def warm_start(model: PrefixModel, settings: ModelConfig) -> list[float]:
    """Fit a new prefix to the base's key/value cache of the ids 0, 1, …, and return the error before each step.

    The result is the same on every rank.
    """
    if model.encoder is None or not settings.warm_start_steps:
        return []
    with _gathered(model.base):
        target = cache_values(model.base, settings.length)
    errors = fit(model.encoder, target, settings.warm_start_steps, settings.warm_start_lr)
    # The last gradients of the fit must not enter the first training step.
    model.zero_grad()
    return errors


@contextmanager
def _gathered(base: nn.Module) -> Iterator[None]:
    """Open a context in which a base that ZeRO-3 has partitioned can run forward passes.

    The parameters of each module are gathered only for its own forward pass.
    """
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

"""The model to train: a frozen base model with a prefix encoder or, for comparison, the whole base model by itself."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.generation.prefix_cache import Shape, past
from course_lib.models import frozen_base
from course_lib.models.causal import blocks
from course_lib.prefix.config import ModelConfig, PrefixConfig
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.warm_start import cache_values, fit
from course_lib.training.freezing import freeze

# The names of the encoder's parameters start with this.
ENCODER = "encoder."


class PrefixModel(nn.Module):
    """Model that returns the logits for texts after the encoder's prefix; without an encoder, the base is trained."""

    def __init__(self, base: Any, encoder: PrefixEncoder | None) -> None:
        super().__init__()
        self.base, self.encoder = base, encoder
        self.shape = Shape.of(base.config)

    def train(self, mode: bool = True) -> "PrefixModel":
        """Set the training mode as for any module, but keep a frozen base model in eval mode, without dropout."""
        super().train(mode)
        if self.encoder is not None:
            self.base.eval()
        return self

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the logits [batch, seq, vocabulary size] for `input_ids` [batch, seq] without left padding."""
        cache = None
        if self.encoder is not None:
            rows = self.encoder()
            cache, _ = past([rows] * len(input_ids), self.shape, self.base.dtype, input_ids.device, grows=False)
        logits: Tensor = self.base(input_ids=input_ids, past_key_values=cache, use_cache=False).logits
        return logits


def build(settings: PrefixConfig) -> PrefixModel:
    """Return a run's model before its warm start, with the base model in the run's dtype and the encoder in fp32."""
    model = settings.model
    assert model.base
    base = frozen_base.load(model.base, TORCH[settings.precision.dtype])
    if model.recompute == "full":
        recompute(base)
    if model.method == "full":
        return PrefixModel(base.requires_grad_(True), None)
    # Set the seed only now, because loading the base model may have drawn random numbers.
    torch.manual_seed(settings.engine.seed)
    built = PrefixModel(base, new_encoder(model, Shape.of(base.config)))
    freeze(built, {name for name, _ in built.named_parameters() if not name.startswith(ENCODER)})
    return built


def new_encoder(model: ModelConfig, shape: Shape) -> PrefixEncoder:
    """Return an untrained encoder with the sizes given in the settings."""
    return PrefixEncoder(
        model.length, shape.width, model.input_dim, model.hidden_dim, model.dropout, model.method == "mlp"
    )


def recompute(base: Any) -> None:
    """Make the backward pass recompute each block. Gradient checkpointing in transformers would drop the prefix."""
    for block in blocks(base):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def warm_start(model: PrefixModel, settings: ModelConfig, ids: Sequence[int] | None = None) -> list[float]:
    """Fit a new prefix to the base's cache of some ids (None: 0, 1, …), and return the error before each step."""
    if model.encoder is None or not settings.warm_start_steps:
        return []
    with _gathered(model.base):
        target = cache_values(model.base, settings.length if ids is None else ids)
    errors = fit(model.encoder, target, settings.warm_start_steps, settings.warm_start_lr)
    # Clear the last gradients, so that they do not affect the first training step.
    model.zero_grad()
    return errors


def _gathered(base: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which each rank holds the whole base model, even if ZeRO-3 has partitioned it."""
    if not any(hasattr(parameter, "ds_id") for parameter in base.parameters()):
        return nullcontext()
    from deepspeed.runtime.zero.partition_parameters import GatheredParameters

    gathered: AbstractContextManager[None] = GatheredParameters(list(base.parameters()))
    return gathered

"""GPTSAN trainer: computes the loss and saves checkpoints without frozen parameters.

Shapes: B samples in a micro-batch, T = num_context, V = vocabulary size, N positions with a target.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import TrainingArguments
from typing_extensions import override

from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.layouts import IGNORE
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.prefix import prefix_types
from course_lib.gptsan.samples import Samples, collate
from course_lib.training.settings import ResolvedBatch
from course_lib.training.trainer import RunTrainer, Sets


class GptsanTrainer(RunTrainer):
    """Trainer for the parameters that are not frozen. `examples` holds the training and held-out examples."""

    settings: GptsanConfig

    def __init__(
        self,
        settings: GptsanConfig,
        batch: ResolvedBatch,
        arguments: TrainingArguments,
        model: GPTSanForCausalLM,
        examples: Sequence[Examples],
    ) -> None:
        train, held_out = examples
        mode, width, seed = settings.spout.mode, model.config.d_spout, settings.engine.seed
        sets = Sets(
            train=Samples(train, arguments.max_steps * batch.total, seed, mode, width),
            validation=Samples(held_out, len(held_out), seed, mode, width, shuffle=False) if len(held_out) else None,
            test=None,
            tokens_per_sample=train.report["num_context"],
            samples_per_epoch=len(train),
            flops_per_token=settings.sizes().flops_per_token,
            collate=collate,
        )
        super().__init__(settings, batch, arguments, model, sets)

    @override
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the mean cross-entropy [nats] over the positions with a target.

        In training, z_loss · mean (log Z)² and the router losses are added. `inputs` come from `samples.collate`.
        """
        spout = inputs.get("spout")
        types = prefix_types(inputs["num_input"], inputs["x"].shape[1], spout is not None)
        output = model(input_ids=inputs["x"], token_type_ids=types, spout=spout, use_cache=False)
        loss, log_z = cross_entropy(output.logits, inputs["y"])
        if model.training:
            loss = loss + self.settings.loss.z_loss * log_z + output.router_loss
        return (loss, output) if return_outputs else loss

    @override
    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save as the base class does.

        Frozen parameters are omitted if model.checkpoint contains them.
        """
        if self.settings.model.checkpoint:
            engine = self.model_wrapped
            engine.save_checkpoint = partial(type(engine).save_checkpoint, engine, exclude_frozen_parameters=True)
        super()._save_optimizer_and_scheduler(output_dir)

    @override
    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """Save the weights in the dtype used in the forward pass.

        Frozen weights are omitted if model.checkpoint contains them.
        """
        weights = state_dict or self.model.state_dict()
        if self.settings.model.checkpoint:
            trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
            weights = {name: value for name, value in weights.items() if name in trained}
        super()._save(output_dir, weights)


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy [nats] and the mean of (log Z)² over the positions with a target.

    Both are 0 if no position has a target. `logits` are [B, T, V]; `targets` are [B, T], with IGNORE at positions
    without a target.
    """
    learned = targets != IGNORE
    # [N, V] and [N]
    chosen, wanted = logits[learned].float(), targets[learned]
    count = max(len(wanted), 1)
    log_z = chosen.logsumexp(-1)
    return F.cross_entropy(chosen, wanted, reduction="sum") / count, log_z.square().sum() / count

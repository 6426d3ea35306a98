"""The Trainer of GPTSAN: its loss, and a checkpoint that holds what is trained. Shapes: B samples of the micro batch, T = num_context, V entries."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import TrainingArguments
from typing_extensions import override

from course_lib.errors import CourseError
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.freeze import decays, digests
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.prefix import prefix_types
from course_lib.gptsan.samples import Samples, collate
from course_lib.training.settings import ResolvedBatch
from course_lib.training.trainer import RunTrainer, Sets

IGNORED = -1  # in y: nothing is learned


class GptsanTrainer(RunTrainer):
    """Trains what of a GPTSAN is not frozen, on encoded examples."""

    settings: GptsanConfig

    def __init__(
        self,
        settings: GptsanConfig,
        batch: ResolvedBatch,
        arguments: TrainingArguments,
        model: GPTSanForCausalLM,
        examples: Sequence[Examples],
    ) -> None:
        """`examples` are those for training and those held out."""
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
    def on_weights_ready(self) -> None:
        """Called when the weights stand on their device in their format: takes the digests of what is frozen."""
        self.frozen = digests(self.model)

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Proves first that no bit of what is frozen has changed. Raises CourseError if one has: then there is no checkpoint."""
        after = digests(self.model)
        if changed := sorted(name for name, digest in self.frozen.items() if after[name] != digest):
            raise CourseError(f"{changed[0]} was to stay frozen and has changed since training began")
        super()._save_checkpoint(model, trial)

    @override
    def decays(self, name: str) -> bool:
        return decays(name)

    @override
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Mean cross-entropy [nats] over what is learned; in training with z_loss · mean (log Z)² and the routers' losses.

        `inputs`: x, y [B, T], of which y is shifted already; num_input [B]; spout [B, d_spout] where there is one.
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
        """As in the Trainer, without what is frozen where that lies in model.checkpoint."""
        if self.settings.model.checkpoint:
            engine = self.model_wrapped
            engine.save_checkpoint = partial(type(engine).save_checkpoint, engine, exclude_frozen_parameters=True)
        super()._save_optimizer_and_scheduler(output_dir)

    @override
    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """The weights as the forward pass uses them, without what is frozen likewise."""
        found = state_dict or self.model.state_dict()
        if self.settings.model.checkpoint:
            trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
            found = {name: value for name, value in found.items() if name in trained}
        super()._save(output_dir, found)


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(mean cross-entropy [nats], mean of (log Z)²) of logits [B, T, V] where targets [B, T] are not −1; 0 if none is."""
    learned = targets != IGNORED
    chosen, wanted = logits[learned].float(), targets[learned]  # [N, V], [N]
    count = max(len(wanted), 1)
    log_z = chosen.logsumexp(-1)
    return F.cross_entropy(chosen, wanted, reduction="sum") / count, log_z.square().sum() / count

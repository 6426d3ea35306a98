"""Trainer for a prefix: warm start, loss, and checkpoints without the base model's weights."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from transformers import TrainingArguments
from typing_extensions import override

from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.model import PrefixModel, warm_start
from course_lib.prefix.samples import Samples, TokenRow, collate, loss
from course_lib.training.settings import ResolvedBatch
from course_lib.training.trainer import RunTrainer, Sets


class PrefixTrainer(RunTrainer):
    """Trainer for a prefix encoder or, if there is none, for the base model."""

    settings: PrefixConfig

    def __init__(
        self,
        settings: PrefixConfig,
        batch: ResolvedBatch,
        arguments: TrainingArguments,
        model: PrefixModel,
        train: Sequence[TokenRow],
        held_out: Sequence[TokenRow],
    ) -> None:
        seed = settings.engine.seed
        sets = Sets(
            train=Samples(train, arguments.max_steps * batch.total, seed),
            validation=Samples(held_out, len(held_out), seed, shuffle=False) if held_out else None,
            test=None,
            tokens_per_sample=round(mean(len(row.ids) - 1 for row in train)),
            samples_per_epoch=len(train),
            flops_per_token=settings.sizes().flops_per_token,
            collate=collate,
        )
        super().__init__(settings, batch, arguments, model, sets)

    @override
    def run_to_end(self, latest: Path | None) -> None:
        """Train to the end. Unless the run is resumed, the prefix is first given a warm start."""
        if latest is None:
            if self.settings.zero.stage < 3:
                self.model.to(self.args.device)
            elif self.model.encoder is not None:
                self.model.encoder.to(self.args.device)
            warm_start(self.model, self.settings.model)
        if self.model.encoder is not None:
            # DeepSpeed keeps its own fp32 copy of the weights.
            self.model.encoder.to(TORCH[self.settings.precision.dtype])
        super().run_to_end(latest)

    @override
    def on_weights_ready(self) -> None:
        """Exclude the frozen weights from checkpoints."""
        engine = self.model_wrapped
        engine.save_checkpoint = partial(type(engine).save_checkpoint, engine, exclude_frozen_parameters=True)

    @override
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save nothing, because the weights are in DeepSpeed's files, which `export` reads."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the mean cross-entropy [nats] for a micro-batch from samples.collate."""
        logits = model(inputs["input_ids"])
        mean_loss = loss(logits, inputs["labels"])
        return (mean_loss, logits) if return_outputs else mean_loss

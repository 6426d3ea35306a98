"""The Trainer of a prefix: its warm start, its loss, and checkpoints that hold nothing of the base."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from transformers import TrainingArguments
from typing_extensions import override

from course_lib.errors import CourseError
from course_lib.gptsan.freeze import digests
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.model import DTYPES, PrefixModel, warm_start
from course_lib.prefix.samples import Row, Samples, collate, loss
from course_lib.training.settings import ResolvedBatch
from course_lib.training.trainer import RunTrainer, Sets

NOT_DECAYED = re.compile(r"bias$|\.ln_|norm")  # as upstream: biases and norms


class PrefixTrainer(RunTrainer):
    """Trains the encoder of a prefix; or, without one, the base."""

    settings: PrefixConfig

    def __init__(
        self,
        settings: PrefixConfig,
        batch: ResolvedBatch,
        arguments: TrainingArguments,
        model: PrefixModel,
        train: Sequence[Row],
        held_out: Sequence[Row],
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
        """As of any run; a new prefix gets its warm start first, one that goes on has had it."""
        if latest is None:
            if self.settings.zero.stage < 3:
                self.model.to(self.args.device)
            elif self.model.encoder is not None:
                self.model.encoder.to(self.args.device)
            warm_start(self.model, self.settings.model)
        if self.model.encoder is not None:
            self.model.encoder.to(DTYPES[self.settings.precision.dtype])  # DeepSpeed keeps the fp32 weights
        super().run_to_end(latest)

    @override
    def on_weights_ready(self) -> None:
        """Called when the weights stand on their device in their format: takes the digests of what is frozen."""
        self.frozen = digests(self.model)
        engine = self.model_wrapped
        engine.save_checkpoint = partial(type(engine).save_checkpoint, engine, exclude_frozen_parameters=True)

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Proves first that no bit of the base has changed. Raises CourseError if one has: then there is no checkpoint."""
        after = digests(self.model)
        if changed := sorted(name for name, digest in self.frozen.items() if after[name] != digest):
            raise CourseError(f"{changed[0]} was to stay frozen and has changed since training began")
        super()._save_checkpoint(model, trial)

    @override
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Nothing: DeepSpeed's files hold the weights, and export reads them there."""

    @override
    def decays(self, name: str) -> bool:
        return decays(name)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Mean cross-entropy [nats] of the labels of a micro batch; `inputs` are those of samples.collate."""
        logits = model(inputs["input_ids"])
        found = loss(logits, inputs["labels"])
        return (found, logits) if return_outputs else found


def decays(name: str) -> bool:
    """Whether weight decay applies to a parameter."""
    return not NOT_DECAYED.search(name)

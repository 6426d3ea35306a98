"""The run that trains a prefix of a frozen model: identity, data, model, loss and export."""

from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from typing_extensions import override

from course_lib.checkpoints.tokenizer_files import NAMES, copy_present
from course_lib.errors import CourseError, UsageError
from course_lib.files import sha256
from course_lib.generation.prefix_cache import Shape, learned_positions
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.prefix import data, samples
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.model import PrefixModel, build, warm_start
from course_lib.prefix.samples import TokenRow
from course_lib.pretrain import text_codec
from course_lib.pretrain.text_codec import TextCodec
from course_lib.training.lr_schedule import warmup_steps
from course_lib.training.run import ENDLESS, Run, RunData
from course_lib.training.settings import ResolvedBatch


class PrefixRun(Run):
    """A run that trains a prefix or, for comparison, the whole base model (model.base) on the texts in data.input."""

    settings_class = PrefixConfig
    command = "prefix train"
    settings: PrefixConfig

    @property
    def base(self) -> Path:
        """Folder of the base model."""
        if self.settings.model.base is None:
            raise UsageError("model.base: not set; give the folder of a GPT-2 or GPT-NeoX")
        return self.settings.model.base

    @cached_property
    def codec(self) -> TextCodec:
        """Text codec for the base model."""
        return text_codec.load(self.base)

    @cached_property
    def texts(self) -> data.TaskData:
        """Samples from data.input, read on first access."""
        limit, model = learned_positions(frozen_base.read_config(self.base)), self.settings.model
        taken = 0 if model.method == "full" else model.length
        return data.load(self.settings.data, self.codec, None if limit is None else limit - taken)

    def rows(self) -> tuple[list[TokenRow], list[TokenRow]]:
        """Return the training and held-out sequences."""
        begin, end = self.codec.begin, self.codec.tokenizer.eos_token_id
        chosen = self.settings.data.begin
        if end is None:
            raise UsageError(f"model.base: the tokenizer of {self.base} has no end-of-text token (eos_token)")
        if begin is None and chosen != "without":
            raise UsageError(
                f"data.begin: {chosen} is not allowed: the base's tokenizer has no begin-of-text token; "
                "allowed: without"
            )
        kind = (None if chosen == "without" else begin, chosen != "with", end)
        return samples.rows(self.texts.train, *kind), samples.rows(self.texts.held_out, *kind)

    def start(self) -> list[int] | None:
        """Return the ids to whose cache a new prefix is fitted; None: 0, 1, …"""
        length, text = self.settings.model.length, self.settings.model.warm_start_text
        if text is None:
            return None
        if not self.settings.model.warm_start_steps:
            raise UsageError("model.warm_start_steps: 0 is not allowed with model.warm_start_text; allowed: 1 or more")
        ids = self.codec.prompt(text)
        if len(ids) < length:
            raise UsageError(f"model.warm_start_text: {len(ids)} tokens; allowed: at least model.length, {length}")
        return ids[:length]

    @override
    def title(self) -> str:
        whole = self.settings.model.method == "full"
        name = self.settings.task_name
        return tr("the whole base {name!r}", name=name) if whole else tr("prefix {name!r}", name=name)

    @override
    def copy_tokenizer(self, folder: Path) -> None:
        copy_present(self.base, folder, NAMES)

    @override
    def check(self) -> None:
        shape = frozen_base.read_config(self.base)
        self.rows()
        self.start()
        for sample in (*self.texts.train, *self.texts.held_out):
            if max([*sample.prompt, *sample.target]) >= shape.vocab_size:
                origin = f"{self.texts.path}, line {sample.line}"
                raise CourseError(f"{origin}: the tokenizer gives ids that the base does not have")

    @override
    def steps(self, batch: ResolvedBatch) -> int | None:
        engine = self.settings.engine
        if engine.max_seconds is not None:
            return None
        rows = int((engine.num_train_epochs or 1) * len(self.rows()[0]))
        steps = engine.max_steps or rows // batch.total
        if not steps:
            raise CourseError(
                f"{rows} rows of training are less than one step of {batch.total}; "
                "give more samples or epochs, or a smaller batch"
            )
        warmup_steps(self.settings.optimizer.lr, steps)
        return steps

    @override
    def summary(self) -> str:
        return self.texts.summary()

    @override
    def identity(self) -> dict[str, Any]:
        path = self.texts.path
        return {
            "settings": self.settings.identity(),
            "inputs": {path.name: sha256(path)},
            "base": frozen_base.digest(self.base),
            "shape": asdict(Shape.of(frozen_base.read_config(self.base))),
            "samples": len(self.texts.train),
            "held_out": len(self.texts.held_out),
            "overlong": self.texts.overlong,
            "unknown": self.texts.unknown,
            "too_long": self.texts.too_long,
        }

    @property
    @override
    def saves_frozen(self) -> bool:
        return False

    @override
    def model(self) -> PrefixModel:
        return build(self.settings)

    @override
    def data(self, number: int | None) -> RunData:
        (train, held_out), seed = self.rows(), self.settings.engine.seed
        return RunData(
            train=samples.Samples(train, number or ENDLESS, seed),
            validation=samples.Samples(held_out, len(held_out), seed, shuffle=False) if held_out else None,
            test=None,
            tokens_per_sample=mean(len(row.ids) - 1 for row in train),
            samples_per_epoch=len(train),
            flops_per_token=self.settings.sizes().flops_per_token,
            collate=samples.collate,
        )

    @override
    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean cross-entropy [nats per token] for a micro-batch from samples.collate."""
        return samples.loss(model(batch["input_ids"]), batch["labels"])

    @override
    def targets(self, batch: Any) -> Any:
        return (batch["labels"] != samples.IGNORED).sum()

    @override
    def prepare(self, model: PrefixModel, device: Any) -> None:
        """Give a new prefix its warm start."""
        # Under ZeRO stage 3, the base is sharded and stays where it is.
        if not any(hasattr(parameter, "ds_id") for parameter in model.base.parameters()):
            model.to(device)
        elif model.encoder is not None:
            model.encoder.to(device)
        warm_start(model, self.settings.model, self.start())

    @override
    def export(self, target: Path, step: int | None = None) -> dict[str, Any]:
        """Export the prefix to a file or, with method `full`, the base to a Hugging Face folder."""
        from course_lib.prefix.export import export

        return export(self.settings.engine.output_dir, target, step)

"""What a prefix tuning run trains: model, data and loss, for the launcher of chapter 4."""

from collections.abc import Iterable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from typing_extensions import override

from course_lib.checkpoints.tokenizer_files import NAMES, copy_present
from course_lib.checkpoints.torch_dtypes import TORCH
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
from course_lib.settings import config
from course_lib.training.lr_schedule import warmup_steps
from course_lib.training.settings import ResolvedBatch
from course_lib.training.task import RunSamples, Task


class PrefixTask(Task):
    """A task that trains a prefix or, for comparison, the whole base model (model.base) on the texts in data.input."""

    settings_class = PrefixConfig
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
    def data(self) -> data.TaskData:
        """Samples from data.input, read on first access."""
        return data.load(self.settings.data, self.codec)

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
        return samples.rows(self.data.train, *kind), samples.rows(self.data.held_out, *kind)

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
        prefix = 0 if self.settings.model.method == "full" else self.settings.model.length
        begin, limit = self.settings.data.begin != "without", learned_positions(shape)
        for sample in (*self.data.train, *self.data.held_out):
            ids, place = [*sample.prompt, *sample.target], f"{self.data.path}, line {sample.line}"
            positions = prefix + (begin and not sample.prompt) + len(ids)
            if limit and positions > limit:
                raise CourseError(f"{place}: needs {positions} positions with the prefix, the base has {limit}")
            if max(ids) >= shape.vocab_size:
                raise CourseError(f"{place}: the tokenizer gives ids that the base does not have")

    @override
    def steps(self, batch: ResolvedBatch) -> int:
        engine = self.settings.engine
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
        return self.data.summary()

    @override
    def files(self) -> Iterable[Path]:
        assert self.settings.data.input
        return self.settings.data.input, *sorted(self.base.glob("*.safetensors"))

    @override
    def fingerprint(self) -> dict[str, Any]:
        path = self.data.path
        return {
            "inputs": {path.name: sha256(path)},
            "base": frozen_base.digest(self.base),
            "shape": asdict(Shape.of(frozen_base.read_config(self.base))),
            "samples": len(self.data.train),
            "held_out": len(self.data.held_out),
            "overlong": self.data.overlong,
            "unknown": self.data.unknown,
        }

    @override
    def resume_invariants(self, settings: PrefixConfig) -> dict[str, Any]:
        values = config.to_dict(settings)
        names = {
            "model": ("method", "length", "input_dim", "hidden_dim", "dropout"),
            "data": [key for key in values["data"] if key != "input"],
            "optimizer": [key for key in values["optimizer"] if key != "fused"],
            "precision": ["dtype"], "zero": ["stage"], "engine": ["seed"],
        }  # fmt: skip
        return {f"{part}.{key}": values[part][key] for part, keys in names.items() for key in keys}

    @property
    @override
    def saves_frozen(self) -> bool:
        return False

    @override
    def model(self) -> PrefixModel:
        return build(self.settings)

    @override
    def samples(self, number: int) -> RunSamples:
        (train, held_out), seed = self.rows(), self.settings.engine.seed
        return RunSamples(
            train=samples.Samples(train, number, seed),
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
    def before_training(self, model: PrefixModel, device: Any, resumed: bool) -> None:
        """Give a new prefix its warm start, and the encoder the training dtype."""
        if not resumed:
            if self.settings.zero.stage < 3:
                model.to(device)
            elif model.encoder is not None:
                model.encoder.to(device)
            warm_start(model, self.settings.model)
        if model.encoder is not None:
            # DeepSpeed keeps its own fp32 copy of the weights.
            model.encoder.to(TORCH[self.settings.precision.dtype])

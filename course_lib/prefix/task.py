"""Training task for prefix tuning: checks, number of steps, fingerprint and trainer."""

import shutil
from collections.abc import Iterable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from course_lib.checkpoints.tokenizer_files import NAMES
from course_lib.errors import CourseError, UsageError
from course_lib.files import sha256
from course_lib.language.words import tr
from course_lib.prefix import data
from course_lib.prefix.config import PrefixConfig
from course_lib.settings import config
from course_lib.training.lr_schedule import warmup_steps
from course_lib.training.settings import ResolvedBatch
from course_lib.training.task import RunSamples, Task

if TYPE_CHECKING:
    from course_lib.prefix.model import PrefixModel
    from course_lib.prefix.samples import TokenRow
    from course_lib.pretrain.text_codec import TextCodec


class PrefixTask(Task):
    """A task that trains a prefix or, for comparison, the whole base model (model.base) on the texts in data.input."""

    settings_class = PrefixConfig
    # `export` reads DeepSpeed's files.
    saves_weights = False
    settings: PrefixConfig

    @property
    def base(self) -> Path:
        """Folder of the base model."""
        if self.settings.model.base is None:
            raise UsageError("model.base: not set; give the folder of a GPT-2 or GPT-NeoX")
        return self.settings.model.base

    @cached_property
    def codec(self) -> "TextCodec":
        """Text codec for the base model."""
        from course_lib.pretrain import text_codec

        return text_codec.load(self.base)

    @cached_property
    def data(self) -> data.TaskData:
        """Samples from data.input, read on first access."""
        return data.load(self.settings.data, self.codec)

    def rows(self) -> tuple[list["TokenRow"], list["TokenRow"]]:
        """Return the training and held-out sequences."""
        from course_lib.prefix.samples import rows

        begin, end = self.codec.begin, self.codec.tokenizer.eos_token_id
        chosen = self.settings.data.begin
        if end is None:
            raise UsageError(
                f"model.base: the tokenizer of {self.base} has no end-of-text token (eos_token); "
                "give a base whose tokenizer has one"
            )
        if begin is None and chosen != "without":
            raise UsageError(
                f"data.begin: {chosen} is not allowed: the base's tokenizer has no begin-of-text token; "
                "allowed: without"
            )
        kind = (None if chosen == "without" else begin, chosen != "with", end)
        return rows(self.data.train, *kind), rows(self.data.held_out, *kind)

    @override
    def title(self) -> str:
        whole = self.settings.model.method == "full"
        name = self.settings.task_name
        return tr("the whole base {name!r}", name=name) if whole else tr("prefix {name!r}", name=name)

    @override
    def copy_tokenizer(self, folder: Path) -> None:
        for name in NAMES:
            if (self.base / name).is_file():
                shutil.copyfile(self.base / name, folder / name)

    @override
    def check(self) -> None:
        from course_lib.generation.prefix_cache import learned_positions
        from course_lib.models.frozen_base import read_config

        shape = read_config(self.base)
        self.rows()
        prefix = 0 if self.settings.model.method == "full" else self.settings.model.length
        begin, limit = self.settings.data.begin != "without", learned_positions(shape)
        for sample in (*self.data.train, *self.data.held_out):
            ids = [*sample.prompt, *sample.target]
            positions = prefix + (begin and not sample.prompt) + len(ids)
            path, line = self.data.path, sample.line
            if limit and positions > limit:
                raise CourseError(
                    f"{path}, line {line}: needs {positions} positions with the prefix, the base has {limit}"
                )
            if max(ids) >= shape.vocab_size:
                raise CourseError(
                    f"{path}, line {line}: the tokenizer gives ids that the base does not have; "
                    f"allowed: below {shape.vocab_size}"
                )

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
        from course_lib.generation.prefix_cache import Shape
        from course_lib.models.frozen_base import digest, read_config

        path = self.data.path
        return {
            "inputs": {path.name: sha256(path)},
            "base": digest(self.base),
            "shape": asdict(Shape.of(read_config(self.base))),
            "samples": len(self.data.train),
            "held_out": len(self.data.held_out),
            "overlong": self.data.overlong,
            "unknown": self.data.unknown,
        }

    @override
    def resume_invariants(self, settings: PrefixConfig) -> dict[str, Any]:
        values = config.to_dict(settings)
        keys = [("model", key) for key in ("method", "length", "input_dim", "hidden_dim", "dropout")]
        keys += [("data", key) for key in values["data"] if key != "input"]
        keys += [("optimizer", key) for key in values["optimizer"] if key != "fused"]
        keys += [("precision", "dtype"), ("zero", "stage"), ("engine", "seed")]
        return {f"{part}.{key}": values[part][key] for part, key in keys}

    @override
    def train_length(self, settings: PrefixConfig) -> tuple[object, ...]:
        return settings.engine.max_steps, settings.engine.num_train_epochs

    @property
    @override
    def saves_frozen(self) -> bool:
        return False

    @override
    def model(self) -> "PrefixModel":
        from course_lib.prefix.model import build

        return build(self.settings)

    @override
    def samples(self, number: int) -> RunSamples:
        from course_lib.prefix.samples import Samples, collate

        (train, held_out), seed = self.rows(), self.settings.engine.seed
        return RunSamples(
            train=Samples(train, number, seed),
            validation=Samples(held_out, len(held_out), seed, shuffle=False) if held_out else None,
            test=None,
            tokens_per_sample=round(mean(len(row.ids) - 1 for row in train)),
            samples_per_epoch=len(train),
            flops_per_token=self.settings.sizes().flops_per_token,
            collate=collate,
        )

    @override
    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean cross-entropy [nats] for a micro-batch from samples.collate."""
        from course_lib.prefix.samples import loss

        return loss(model(batch["input_ids"]), batch["labels"])

    @override
    def before_training(self, model: "PrefixModel", device: Any, resumed: bool) -> None:
        """Give a new prefix its warm start, and the encoder the training dtype."""
        from course_lib.checkpoints.torch_dtypes import TORCH
        from course_lib.prefix.model import warm_start

        if not resumed:
            if self.settings.zero.stage < 3:
                model.to(device)
            elif model.encoder is not None:
                model.encoder.to(device)
            warm_start(model, self.settings.model)
        if model.encoder is not None:
            # DeepSpeed keeps its own fp32 copy of the weights.
            model.encoder.to(TORCH[self.settings.precision.dtype])

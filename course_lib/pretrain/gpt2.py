"""Training task for GPT-2 and GPT-NeoX models: checks, number of steps, data fingerprint and trainer."""

import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.pretrain import data
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training.lr_schedule import warmup_steps
from course_lib.training.settings import ResolvedBatch
from course_lib.training.task import Task

if TYPE_CHECKING:
    from course_lib.training.trainer import RunTrainer


class Gpt2(Task):
    """A task that trains a GPT-2 or GPT-NeoX model to predict the next token in the token files in data.input."""

    settings_class = PretrainConfig
    settings: PretrainConfig

    @override
    def title(self) -> str:
        model = self.settings.model
        name = {"gpt2": "GPT-2", "gpt-neox": "GPT-NeoX"}[model.architecture]
        return tr("{name}, {layers} layers", name=name, layers=model.num_layers)

    @override
    def copy_tokenizer(self, folder: Path) -> None:
        assert self.settings.data.tokenizer
        for path in self.settings.data.tokenizer.iterdir():
            if path.is_file() and path.name != "manifest.json":
                shutil.copy(path, folder)

    @override
    def check(self) -> None:
        if not self.settings.data.input or self.settings.data.tokenizer is None:
            raise UsageError(
                "data.input, data.tokenizer: not set; give prefixes from `course tokenize` "
                "and the tokenizer they were made with"
            )
        if self.settings.model.attention == "flash_attention_2" and find_spec("flash_attn") is None:
            raise UsageError(
                "model.attention: flash_attention_2 needs the package flash-attn; sdpa has such a kernel built in"
            )
        data.check_vocabulary(self.settings)

    @override
    def steps(self, batch: ResolvedBatch) -> int:
        splits = data.open_splits(self.settings.data, self.settings.model.vocab_size)
        steps = data.training_steps(self.settings, batch, splits.train_tokens)
        warmup_steps(self.settings.optimizer.lr, steps)
        return steps

    @override
    def summary(self) -> str:
        """Return a remark if engine.eval_freq asks for evaluations, but the validation part has no whole sample."""
        chosen = self.settings.data
        tokens = int(data.open_splits(chosen, self.settings.model.vocab_size).validation.sizes.sum())
        if not self.settings.engine.eval_freq or tokens > chosen.seq_length:
            return ""
        return tr(
            "no evaluation: the validation part (data.split {split}) has {tokens:,} tokens, fewer than one sample of "
            "{needed:,}; give more documents, or a larger second share",
            split=chosen.split,
            tokens=tokens,
            needed=chosen.seq_length + 1,
        )

    @override
    def files(self) -> Iterable[Path]:
        inputs, tokenizer = self.settings.data.input, self.settings.data.tokenizer
        assert tokenizer
        return *(prefix.with_suffix(".bin") for prefix in inputs), tokenizer / "tokenizer.json"

    @override
    def fingerprint(self) -> dict[str, Any]:
        return {"inputs": data.fingerprint(self.settings.data.input)}

    @override
    def resume_invariants(self, settings: PretrainConfig) -> dict[str, Any]:
        values = config.to_dict(settings)
        keys = [("model", key) for key in values["model"] if key not in ("recompute", "attention")]
        keys += [("optimizer", key) for key in values["optimizer"] if key != "fused"]
        keys += [("data", "split"), ("data", "seq_length"), ("data", "mask_loss_at_eod")]
        keys += [("precision", "dtype"), ("zero", "stage"), ("engine", "seed")]
        return {f"{part}.{key}": values[part][key] for part, key in keys}

    @override
    def train_length(self, settings: PretrainConfig) -> tuple[object, ...]:
        return settings.engine.max_steps, settings.engine.num_train_epochs, settings.data.train_tokens

    @override
    def trainer(self, batch: ResolvedBatch, steps: int) -> "RunTrainer":
        from course_lib.models.causal import build_model
        from course_lib.pretrain.gpt2_trainer import Gpt2Trainer
        from course_lib.training.trainer import init_distributed

        settings = self.settings
        splits = data.open_splits(settings.data, settings.model.vocab_size)
        assert settings.data.tokenizer
        first, end = data.special_ids(settings.data.tokenizer)
        arguments = init_distributed(settings, batch, steps, settings.data.reader_workers)
        return Gpt2Trainer(settings, batch, arguments, build_model(settings.model, first, end), splits, end)

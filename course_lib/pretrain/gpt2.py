"""The run that pretrains a GPT-2 or GPT-NeoX: checks, number of steps, identity, data, model, loss and export."""

import shutil
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.errors import UsageError
from course_lib.files import FILE_LIST
from course_lib.language.words import tr
from course_lib.pretrain import data, memory
from course_lib.pretrain.best_fit import NO_TOKEN, PackedDocuments, document_mask
from course_lib.pretrain.config import PretrainConfig
from course_lib.training.lr_schedule import warmup_steps
from course_lib.training.run import ENDLESS, Run, RunData
from course_lib.training.settings import ResolvedBatch

MASKED = NO_TOKEN  # label for positions that are excluded from the loss


class Gpt2(Run):
    """A run that trains a GPT-2 or GPT-NeoX model to predict the next token in the token files in data.input."""

    settings_class: ClassVar[type[PretrainConfig]] = PretrainConfig
    command = "pretrain"
    # Names of trained weights that the exported model does not have.
    not_exported: ClassVar[tuple[str, ...]] = ()
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
            if path.is_file() and path.name not in ("manifest.json", FILE_LIST):
                shutil.copy(path, folder)

    @override
    def check(self) -> None:
        if not self.settings.data.input or self.settings.data.tokenizer is None:
            raise UsageError("data.input, data.tokenizer: not set; give token files and their tokenizer")
        if self.settings.model.attention == "flash_attention_2" and find_spec("flash_attn") is None:
            raise UsageError("model.attention: flash_attention_2 needs the package flash-attn; sdpa has such a kernel")
        if self.settings.model.attention == "flash_attention_2" and self.settings.data.packing == "best-fit":
            raise UsageError("model.attention: flash_attention_2 takes no mask of documents (data.packing: best-fit)")
        data.special_ids(self.settings)

    @cached_property
    def splits(self) -> data.Splits:
        """The training, validation and test sequences."""
        return data.open_splits(self.settings.data, self.settings.model.vocab_size)

    @override
    def steps(self, batch: ResolvedBatch) -> int | None:
        steps = data.training_steps(self.settings, batch, self.splits.train)
        if steps:
            warmup_steps(self.settings.optimizer.lr, steps)
        return steps

    @override
    def summary(self) -> str:
        """Return a remark if engine.eval_freq asks for evaluations, but the validation part has no whole sample."""
        part, tokens = self.settings.data, int(self.splits.validation.sizes.sum())
        if not self.settings.engine.eval_freq or tokens > (part.seq_length if part.packing == "stream" else 0):
            return ""
        return tr(
            "no evaluation: the validation part (data.split {split}) has {tokens:,} tokens, fewer than one sample of "
            "{needed:,}; give more documents, or a larger second share",
            split=part.split, tokens=tokens, needed=part.seq_length + 1,
        )  # fmt: skip

    @override
    def identity(self) -> dict[str, Any]:
        settings = self.settings
        identity: dict[str, Any] = {
            "settings": self.settings.identity(),
            "inputs": data.fingerprint(settings.data.input),
        }
        long = int((self.splits.train.sizes > settings.data.seq_length).sum())
        if settings.data.packing == "best-fit" and long:
            # Earlier versions cut these documents and had other samples: a run that one of them began is not resumed.
            identity["split documents"] = long
        return identity

    @override
    def reader_workers(self) -> int:
        return self.settings.data.reader_workers

    @cached_property
    def special_ids(self) -> tuple[int, int]:
        """The ids of the tokenizer's <s> and </s>."""
        return data.special_ids(self.settings)

    @override
    def model(self) -> Any:
        from course_lib.models.causal import build_model

        return build_model(self.settings.model, *self.special_ids)

    @override
    def data(self, number: int | None) -> RunData:
        settings, length = self.settings, data.sample_tokens(self.settings.data, self.splits.train)
        train = data.dataset(settings, self.splits.train, number or ENDLESS)
        per_epoch = train.first_epoch if isinstance(train, PackedDocuments) else self.splits.train_tokens / length
        return RunData(
            train=train,
            validation=data.dataset(settings, self.splits.validation),
            test=data.dataset(settings, self.splits.test),
            tokens_per_sample=length,
            samples_per_epoch=per_epoch,
            flops_per_token=memory.flops_per_token(settings.model, length),
            # Compiled code is for one shape.
            collate=partial(collate, longest=settings.data.seq_length + 1) if settings.engine.compile else collate,
        )

    @override
    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean cross-entropy [nats per token] for {"tokens": ids [B, S + 1]}, MASKED where there is none."""
        logits = model(**self.inputs(batch)).logits
        return total_loss(logits, self.labels(batch)) / self.targets(batch).clamp(min=1)

    @override
    def targets(self, batch: Any) -> Any:
        return (self.labels(batch) != MASKED).sum()

    def inputs(self, batch: Any) -> dict[str, Any]:
        """Return what the model is called with: input ids [B, S] and, for whole documents, their attention mask."""
        ids, mask = batch["tokens"][:, :-1], None
        if self.settings.data.packing == "best-fit":
            mask = document_mask(ids, self.special_ids[1])
        # No token attends to padding on the right or to the position before a remainder, so any id will do there.
        return {"input_ids": ids.clamp(min=0), "attention_mask": mask, "use_cache": False}

    def labels(self, batch: Any) -> Any:
        """Return the label at each position of the input [B, S]: the id of the next token, or MASKED."""
        tokens = batch["tokens"]
        # A token with no token before it is not predicted.
        labels = tokens[:, 1:].masked_fill(tokens[:, :-1] == NO_TOKEN, MASKED)
        if self.settings.data.mask_loss_at_eod:
            labels = labels.masked_fill(tokens[:, :-1] == self.special_ids[1], MASKED)
        return labels

    @override
    def export(
        self,
        target: Path,
        step: int | None = None,
        dtype: NumberFormat | None = None,
        license: str | None = None,
    ) -> dict[str, Any]:
        """Export the model to a Hugging Face folder; `dtype` None: that of the training."""
        from course_lib.pretrain.export import export

        folder, without = self.settings.engine.output_dir, self.not_exported
        return export(folder, target, dtype, license, step, self.settings_class, without)


def total_loss(logits: Any, labels: Any) -> Any:
    """Return the sum of the cross-entropies [nats] of logits [B, S, vocabulary] for labels [B, S], without MASKED."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=MASKED, reduction="sum")


def collate(samples: list[np.ndarray[Any, Any]], longest: int | None = None) -> dict[str, Any]:
    """Return {"tokens": [B, S + 1]}; S + 1 is the length of the longest sample, or `longest`.

    Shorter samples end in MASKED.
    """
    import torch

    tokens = np.full((len(samples), longest or max(map(len, samples))), MASKED, np.int64)
    for row, sample in zip(tokens, samples, strict=True):
        row[: len(sample)] = sample
    return {"tokens": torch.from_numpy(tokens)}

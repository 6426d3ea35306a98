"""Training task for GPT-2 and GPT-NeoX models: checks, number of steps, data, model and loss."""

import shutil
from collections.abc import Iterable
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from course_lib.errors import UsageError
from course_lib.files import MARK
from course_lib.language.words import tr
from course_lib.pretrain import data
from course_lib.pretrain.best_fit import NO_TOKEN, PackedDocuments, document_mask
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training.lr_schedule import warmup_steps
from course_lib.training.settings import ResolvedBatch
from course_lib.training.task import RunSamples, Task

MASKED = NO_TOKEN  # label for positions that are excluded from the loss


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
            if path.is_file() and path.name not in ("manifest.json", MARK):
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
    def steps(self, batch: ResolvedBatch) -> int:
        steps = data.training_steps(self.settings, batch, self.splits.train)
        warmup_steps(self.settings.optimizer.lr, steps)
        return steps

    @override
    def summary(self) -> str:
        """Return a remark if engine.eval_freq asks for evaluations, but the validation part has no whole sample."""
        chosen = self.settings.data
        tokens = int(self.splits.validation.sizes.sum())
        if not self.settings.engine.eval_freq or tokens > (chosen.seq_length if chosen.packing == "stream" else 0):
            return ""
        return tr(
            "no evaluation: the validation part (data.split {split}) has {tokens:,} tokens, fewer than one sample of "
            "{needed:,}; give more documents, or a larger second share",
            split=chosen.split, tokens=tokens, needed=chosen.seq_length + 1,
        )  # fmt: skip

    @override
    def files(self) -> Iterable[Path]:
        inputs, tokenizer = self.settings.data.input, self.settings.data.tokenizer
        assert tokenizer
        return *(prefix.with_suffix(".bin") for prefix in inputs), tokenizer / "tokenizer.json"

    @override
    def fingerprint(self) -> dict[str, Any]:
        chosen, facts = self.settings.data, {"inputs": data.fingerprint(self.settings.data.input)}
        long = int((self.splits.train.sizes > chosen.seq_length).sum())
        # Earlier versions cut these documents and had other samples, so a run that one of them began is not resumed.
        return facts | ({"split documents": long} if chosen.packing == "best-fit" and long else {})

    @override
    def resume_invariants(self, settings: PretrainConfig) -> dict[str, Any]:
        values = config.to_dict(settings)
        names = {
            "model": [key for key in values["model"] if key not in ("recompute", "attention")],
            "optimizer": [key for key in values["optimizer"] if key != "fused"],
            "data": ["split", "seq_length", "packing", "mask_loss_at_eod"],
            "precision": ["dtype"], "zero": ["stage"], "engine": ["seed"],
        }  # fmt: skip
        return {f"{part}.{key}": values[part][key] for part, keys in names.items() for key in keys}

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
    def samples(self, number: int) -> RunSamples:
        settings, length = self.settings, data.sample_tokens(self.settings.data, self.splits.train)
        train = data.dataset(settings, self.splits.train, number)
        per_epoch = train.first_epoch if isinstance(train, PackedDocuments) else self.splits.train_tokens / length
        return RunSamples(
            train=train,
            validation=data.dataset(settings, self.splits.validation),
            test=data.dataset(settings, self.splits.test),
            tokens_per_sample=length,
            samples_per_epoch=per_epoch,
            flops_per_token=settings.model.flops_per_token(length),
            collate=collate,
        )

    @override
    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean cross-entropy [nats per token] for {"tokens": ids [B, S + 1]}, MASKED where there is none."""
        from torch.nn.functional import cross_entropy

        tokens, labels = batch["tokens"], self._labels(batch)
        # No token attends to padding on the right or to the place before a remainder, so any id will do there.
        inputs, mask = tokens[:, :-1], None
        if self.settings.data.packing == "best-fit":
            mask = document_mask(inputs, self.special_ids[1])
        logits = model(input_ids=inputs.clamp(min=0), attention_mask=mask, use_cache=False).logits.float()
        total = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=MASKED, reduction="sum")
        return total / self.targets(batch).clamp(min=1)

    @override
    def targets(self, batch: Any) -> Any:
        return (self._labels(batch) != MASKED).sum()

    def _labels(self, batch: Any) -> Any:
        """Return the label at each position of the input [B, S]: the id of the next token, or MASKED."""
        tokens = batch["tokens"]
        # A token with no token before it is not predicted.
        labels = tokens[:, 1:].masked_fill(tokens[:, :-1] == NO_TOKEN, MASKED)
        if self.settings.data.mask_loss_at_eod:
            labels = labels.masked_fill(tokens[:, :-1] == self.special_ids[1], MASKED)
        return labels


def collate(samples: list[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Return {"tokens": [B, S + 1]}; S + 1 is the length of the longest sample, shorter ones end in MASKED."""
    import torch

    tokens = np.full((len(samples), max(map(len, samples))), MASKED, np.int64)
    for row, sample in zip(tokens, samples, strict=True):
        row[: len(sample)] = sample
    return {"tokens": torch.from_numpy(tokens)}

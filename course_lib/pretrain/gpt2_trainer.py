"""Trainer for GPT-2 and GPT-NeoX models: samples and loss.

In tensor shapes, B is the micro-batch size, S is seq_length and V is the vocabulary size.
"""

from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import TrainingArguments

from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.data import Splits, held_out_set, train_set
from course_lib.training.settings import ResolvedBatch
from course_lib.training.trainer import RunTrainer, Sets

IGNORED = -100  # label for positions that are excluded from the loss


class Gpt2Trainer(RunTrainer):
    """Trainer for a causal language model, with samples of S + 1 tokens."""

    settings: PretrainConfig

    def __init__(
        self,
        settings: PretrainConfig,
        batch: ResolvedBatch,
        arguments: TrainingArguments,
        model: nn.Module,
        splits: Splits,
        end: int,
    ) -> None:
        """Create the trainer; `end` is the id of the end-of-document token."""
        self.end = end
        length = settings.data.seq_length
        sets = Sets(
            train=train_set(settings, splits, arguments.max_steps * batch.total),
            validation=held_out_set(settings, splits.validation),
            test=held_out_set(settings, splits.test),
            tokens_per_sample=length,
            samples_per_epoch=splits.train_tokens / length,
            flops_per_token=settings.model.flops_per_token(length),
            collate=collate,
        )
        super().__init__(settings, batch, arguments, model, sets)

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the mean cross-entropy [nats per token] of predicting tokens 1…S from tokens 0…S-1.

        `inputs` is {"tokens": token ids [B, S + 1]}. If `return_outputs` is true, the model output, with logits
        [B, S, V], is also returned.
        """
        tokens = inputs["tokens"]
        labels = tokens[:, 1:]
        if self.settings.data.mask_loss_at_eod:
            labels = labels.masked_fill(tokens[:, :-1] == self.end, IGNORED)
        output = model(input_ids=tokens[:, :-1], use_cache=False)
        logits = output.logits.float().flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)
        return (loss, output) if return_outputs else loss


def collate(samples: list[np.ndarray[Any, Any]]) -> dict[str, torch.Tensor]:
    """Stack samples of S + 1 token ids into {"tokens": [B, S + 1]}."""
    return {"tokens": torch.from_numpy(np.stack(samples))}

"""The recipe's form of a run, for one rank: an unchanged `transformers.Trainer` with DeepSpeed: `recipe.py SETTINGS.yaml OUT.json`."""

import json
import sys
from pathlib import Path
from typing import Any

from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2, collate
from course_lib.settings import config
from course_lib.training import extensions
from course_lib.training.deepspeed_config import deepspeed_json, with_optimizer
from torch.utils.data import Subset
from transformers import Trainer, TrainingArguments, set_seed


def shifted(samples: list[Any]) -> dict[str, Any]:
    """The model reads all tokens but the last, and predicts all but the first."""
    tokens = collate(samples)["tokens"]
    return {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:], "shift_labels": tokens[:, 1:]}


if __name__ == "__main__":
    extensions.skip_shared_memory()
    run = Gpt2(config.load(PretrainConfig, sys.argv[1]))
    batch = run.settings.batch.resolve(1)
    steps = run.steps(batch)
    assert steps
    wanted = run.settings.optimizer
    content = with_optimizer(deepspeed_json(run.settings, batch), run.settings, steps)
    arguments = TrainingArguments(
        output_dir=str(Path(sys.argv[2]).parent / "trainer"), deepspeed=content,
        learning_rate=content["optimizer"]["params"]["lr"], warmup_steps=wanted.lr.warmup_steps,
        adam_beta1=wanted.beta1, adam_beta2=wanted.beta2, weight_decay=0.0, max_grad_norm=wanted.grad_clip,
        max_steps=steps, per_device_train_batch_size=batch.micro, gradient_accumulation_steps=batch.accumulation,
        train_sampling_strategy="sequential", logging_steps=1, logging_first_step=True, save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    set_seed(run.settings.engine.seed)
    samples = Subset(run.data(steps * batch.total).train, range(steps * batch.total))
    trainer = Trainer(run.model(), arguments, data_collator=shifted, train_dataset=samples)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    Path(sys.argv[2]).write_text(json.dumps(losses))

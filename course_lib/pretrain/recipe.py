"""A run in the form of the recipes on the web: `transformers.Trainer` with a DeepSpeed JSON, for one rank.

loop.py trains the same model on the same samples with the same losses; section 4b.6 and tests/pretrain/test_recipe.py
compare the two.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from course_lib.pretrain.gpt2 import Gpt2, collate
from course_lib.training.deepspeed_config import deepspeed_json, with_optimizer


def arguments(run: Gpt2, folder: Path) -> TrainingArguments:
    """Return the Trainer's arguments for a run; DeepSpeed's JSON has sections for optimizer and scheduler.

    Raises UsageError if DeepSpeed's scheduler cannot follow the run's learning rate (deepspeed_config.with_optimizer).
    """
    settings, batch = run.settings, run.settings.batch.resolve(1)
    wanted, steps = settings.optimizer, run.steps(batch)
    assert steps
    content = with_optimizer(deepspeed_json(settings, batch), settings, steps)
    return TrainingArguments(
        output_dir=str(folder),
        deepspeed=content,
        max_steps=steps,
        per_device_train_batch_size=batch.micro,
        gradient_accumulation_steps=batch.accumulation,
        learning_rate=content["optimizer"]["params"]["lr"],
        warmup_steps=content["scheduler"]["params"]["warmup_num_steps"],
        adam_beta1=wanted.beta1,
        adam_beta2=wanted.beta2,
        adam_epsilon=wanted.epsilon,
        weight_decay=wanted.weight_decay,
        max_grad_norm=wanted.grad_clip,
        # The samples of a run are already shuffled.
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=settings.launch.device == "cpu",
    )


def collator(run: Gpt2) -> Callable[[list[Any]], dict[str, Any]]:
    """Return the function that makes a micro-batch of samples, as a model of transformers takes it."""

    def collated(samples: list[Any]) -> dict[str, Any]:
        batch = collate(samples)
        labels = run.labels(batch)
        # With `shift_labels`, the model does not shift them again.
        return run.inputs(batch) | {"labels": labels, "shift_labels": labels}

    return collated

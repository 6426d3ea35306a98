"""A run in the form of the recipes on the web: `transformers.Trainer` with a DeepSpeed JSON, for one rank.

loop.py trains the same model on the same samples with the same losses; section 4b.6 and tests/pretrain/test_recipe.py
compare the two.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainingArguments, set_seed

from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2, collate
from course_lib.training import extensions
from course_lib.training.deepspeed_config import deepspeed_json, with_optimizer
from course_lib.training.starter import free_port


def losses(run: Gpt2, folder: Path) -> list[float]:
    """Train a run; return the loss of each step."""
    chosen = arguments(run, folder)
    samples = run.data(chosen.max_steps * run.settings.batch.resolve(1).total).train
    set_seed(run.settings.engine.seed)
    trainer = Trainer(run.model(), chosen, collator(run), samples)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def train(_process: int, settings: PretrainConfig, folder: Path) -> None:
    """Train in a process that torch.multiprocessing.spawn has started; write the losses to losses.json."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(free_port())
    if settings.launch.device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    extensions.skip_shared_memory()
    # What the libraries print goes to a file.
    printed = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    (folder / "losses.json").write_text(json.dumps(losses(Gpt2(settings), folder / "trainer")), encoding="utf8")


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

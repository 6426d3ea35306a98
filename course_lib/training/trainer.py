"""A Hugging Face Trainer subclass with the course's sample order, learning-rate schedule, log and checkpoints."""

import os
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_pt_utils import nested_gather
from transformers.trainer_utils import EvalLoopOutput, IntervalStrategy

from course_lib.checkpoints.safe_load import refusal
from course_lib.errors import CourseError, UsageError
from course_lib.training import checkpoint, environment, extensions, interruptions, log, reshard
from course_lib.training.deepspeed_config import deepspeed_json
from course_lib.training.events import emit
from course_lib.training.freezing import digests, require_unchanged
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.parameter_groups import parameter_groups
from course_lib.training.settings import ResolvedBatch, RunConfig
from course_lib.training.task import Task


class RunTrainer(Trainer):  # type: ignore[misc]
    """The trainer of a task in one rank."""

    optimizer: Any
    lr_scheduler: Any
    # compute_loss divides by the targets of the whole step, so the Trainer does not divide by the accumulation steps.
    loss_is_scaled_for_ga = True

    def __init__(self, task: Task, batch: ResolvedBatch, steps: int) -> None:
        """Connect the ranks, and build the model and the samples."""
        settings: RunConfig = task.settings
        self.task, self.settings, self.batch = task, settings, batch
        self.last_step, self.folder = steps, settings.engine.output_dir
        arguments = training_arguments(settings, batch, steps, task.reader_workers())
        # Reading this property sets the device for this rank.
        _ = arguments.device
        # ZeRO stage 3 shards the model while it is built, so the ranks are connected before.
        extensions.skip_shared_memory()
        deepspeed.init_distributed()
        torch.manual_seed(arguments.seed)
        model, self.sets, engine = task.model(), task.samples(steps * batch.total), settings.engine
        held_out = first(self.sets.validation, engine.eval_iters * batch.total)
        if held_out is None:
            arguments.eval_strategy = IntervalStrategy.NO
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=first(self.sets.train, steps * batch.total),
            eval_dataset=held_out,
            data_collator=self.sets.collate,
            callbacks=[_Steps(self)],
        )
        self.remove_callback(PrinterCallback)
        iterations = 10 * engine.eval_iters if engine.test_iters is None else engine.test_iters
        self.test_dataset = first(self.sets.test, iterations * batch.total)
        self.meter = log.Meter(
            tokens_per_step=batch.total * self.sets.tokens_per_sample,
            ranks=batch.total // batch.local,
            flops_per_token=self.sets.flops_per_token,
            peak_flops=log.peak_flops(engine.peak_tflops),
        )
        # digests of the frozen parameters
        self.frozen: dict[str, int] = {}
        # whether training ended early because of a request
        self.stopped = False

    def run_to_end(self, latest: Path | None) -> None:
        """Train from the checkpoint `latest`, or the beginning, to the last step, or until asked to stop."""
        self.task.before_training(self.model, self.args.device, resumed=latest is not None)
        try:
            self.train(resume_from_checkpoint=str(latest) if latest else None)
        # transformers reads the states of the random generators without running code from them.
        except pickle.UnpicklingError as error:
            raise refusal(Path(str(latest)), error) from error
        if self.test_dataset is not None and not self.stopped:
            self.evaluate(self.test_dataset, metric_key_prefix="test")

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return this micro-batch's part of the step's loss: the mean over the targets of all ranks' micro-batches.

        The parts of a rank are added. Their mean over the ranks, which DeepSpeed takes of the gradients and the Trainer
        of the loss, is the step's loss, so a part is multiplied by the number of ranks.
        """
        share = self.task.targets(inputs) * self.args.world_size / num_items_in_batch
        loss: torch.Tensor = self.task.loss(model, inputs) * share
        return loss

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save nothing beside DeepSpeed's files, which the export reads."""

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        """Return AdamW for the trained parameters; with offload, Accelerate uses DeepSpeed's CPU AdamW instead."""
        if self.optimizer is None:
            wanted = self.settings.optimizer
            groups = parameter_groups(model or self.model, wanted.weight_decay)
            self.optimizer = torch.optim.AdamW(
                groups, wanted.lr.max, (wanted.beta1, wanted.beta2), wanted.epsilon, fused=wanted.fused
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Return a torch scheduler that applies the learning-rate schedule in lr_schedule.py."""
        if self.lr_scheduler is None:
            rate = self.settings.optimizer.lr
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda done: learning_rate(rate, done + 1, self.last_step) / rate.max
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: str | None) -> Any:
        """Prepare as the base class does, and load the checkpoint even if another number of ranks saved it."""
        if not self._resharded(resume_from_checkpoint):
            return super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        prepared = super()._prepare_for_training(max_steps, train_dataloader, None)
        reshard.load(self.model_wrapped, Path(str(resume_from_checkpoint)))
        # the state of the learning-rate schedule
        self._load_optimizer_and_scheduler(resume_from_checkpoint)
        return prepared

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Restore the random generators of this rank, or seed them anew if another number of ranks saved them."""
        if self._resharded(checkpoint):
            set_seed(self.settings.engine.seed + self.state.global_step)
        else:
            super()._load_rng_state(checkpoint)

    def _resharded(self, saved: str | None) -> bool:
        return saved is not None and checkpoint.ranks_of(Path(saved)) != self.args.world_size

    def floating_point_ops(self, inputs: Any) -> int:
        """Return 0, so that the Trainer does not count operations. The log uses FLOPs per token instead."""
        return 0

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        """Return the micro-batches for one step and the number of their targets over all ranks.

        The time to read the micro-batches is measured for the log.
        """
        with self.meter.reading():
            micro_batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        targets = sum(self.task.targets(micro_batch) for micro_batch in micro_batches).to(device)
        dist.all_reduce(targets)
        return micro_batches, targets

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Write one entry to the run log per interval. Other values of the Trainer go only to the trackers."""
        if "loss" in logs and "learning_rate" in logs:
            self._require_finite(logs["loss"])
            epoch = self.state.global_step * self.batch.total / self.sets.samples_per_epoch
            logs |= self.meter.read(self.state.global_step) | {"memory": log.peak_memory()}
            if self.settings.precision.dtype == "fp16":
                engine = self.model_wrapped
                logs |= {"loss_scale": float(engine.optimizer.loss_scale), "skipped_steps": int(engine.skipped_steps)}
            super().log(logs, start_time)
            self._say("train", **logs | {"epoch": epoch})
        else:
            super().log(logs, start_time)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return the held-out micro-batches of this rank."""
        samples = self.eval_dataset if eval_dataset is None else eval_dataset
        return DataLoader(
            samples,
            batch_sampler=micro_batches_of_rank(
                len(samples), self.batch.micro, self.args.process_index, self.args.world_size
            ),
            collate_fn=self.sets.collate,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def evaluation_loop(
        self, dataloader: DataLoader[Any], description: str, *_: Any, metric_key_prefix: str = "eval", **__: Any
    ) -> EvalLoopOutput:
        """Return the mean loss over all targets of the held-out samples [nats per token] as the Trainer expects it."""
        model, number = self.model_wrapped, len(dataloader.dataset)  # type: ignore[arg-type]
        model.eval()
        first_sample, together = self.args.process_index * self.batch.micro, self.args.world_size * self.batch.micro
        # the sum of the losses and the number of targets
        sums = torch.zeros(2, dtype=torch.float64, device=self.args.device)
        for turn, inputs in enumerate(map(self._prepare_inputs, dataloader)):
            with torch.no_grad():
                loss, targets = self.task.loss(model, inputs).double(), self.task.targets(inputs)
            # A rank without samples in the last turn computes along, because ZeRO stage 3 needs all ranks.
            if first_sample + turn * together < number:
                sums += torch.stack([loss * targets, targets.double()])
        dist.all_reduce(sums)
        return EvalLoopOutput(None, None, {f"{metric_key_prefix}_loss": (sums[0] / sums[1]).item()}, number)

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        """Evaluate as the base class does, and log the mean loss [nats per token]; the log's clock is stopped."""
        with self.meter.stopped():
            started = perf_counter()
            metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
            loss = float(metrics[f"{metric_key_prefix}_loss"])
            self._say(metric_key_prefix, loss=loss, seconds=perf_counter() - started)
        return metrics

    def _say(self, kind: str, **values: Any) -> None:
        if self.is_world_process_zero():
            entry = {"kind": kind, "step": self.state.global_step} | values
            log.append(self.folder, entry)
            emit("log", entry=entry)

    def _require_finite(self, loss: float) -> None:
        """Raise CourseError if the loss, a mean over all ranks, is not finite."""
        if not np.isfinite(loss):
            whole = checkpoint.whole_checkpoints(self.folder)
            last = f"; the last complete checkpoint is {whole[0].name}" if whole else ""
            raise CourseError(
                f"the loss is {loss} at step {self.state.global_step}{last}: lower optimizer.lr.max, "
                "lengthen its warm-up, clip gradients (optimizer.grad_clip), or train in bf16 instead of fp16"
            )

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save a checkpoint, mark it as complete, and then remove older ones: the run may be killed at any time."""
        require_unchanged(self.model, self.frozen)
        self._require_finite(float(nested_gather(self._tr_loss, self.args.parallel_mode).mean()))
        with self.meter.stopped():
            if self.is_world_process_zero():
                checkpoint.record(self.folder, self.state.global_step)
            super()._save_checkpoint(model, trial)
            if dist.is_initialized():
                dist.barrier()
            if self.is_world_process_zero():
                checkpoint.mark_complete(checkpoint.at(self.folder, self.state.global_step))
                checkpoint.prune(self.folder, self.settings.engine.keep_checkpoints)
                emit("saved", step=self.state.global_step)


class _Steps(TrainerCallback):  # type: ignore[misc]
    """A callback that reports progress, and ends training on request."""

    def __init__(self, trainer: RunTrainer) -> None:
        self.trainer, self.sent = trainer, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # Only now have the weights their final device and dtype.
        self.trainer.frozen = digests(self.trainer.model)
        if not self.trainer.task.saves_frozen:
            engine = self.trainer.model_wrapped
            engine.save_checkpoint = partial(type(engine).save_checkpoint, engine, exclude_frozen_parameters=True)
        self.trainer.meter.restart(state.global_step)
        if state.is_world_process_zero:
            emit("training", step=state.global_step, steps=state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if interruptions.stop_agreed(args.device):
            self.trainer.stopped = control.should_training_stop = control.should_save = True
            control.should_evaluate = False
        now = perf_counter()
        if state.is_world_process_zero and (now - self.sent > 0.2 or state.global_step == state.max_steps):
            self.sent = now
            emit("step", step=state.global_step)


def training_arguments(
    settings: RunConfig, batch: ResolvedBatch, steps: int, reader_workers: int = 0
) -> TrainingArguments:
    """Return the Hugging Face TrainingArguments for a run.

    Also set environment variables for the trackers, and remove those of Accelerate, which other nodes may have.
    """
    environment.remove_settings(os.environ)
    engine, precision = settings.engine, settings.precision
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(engine.output_dir / "tensorboard")
    os.environ["WANDB_DIR"] = str(engine.output_dir)
    os.environ.setdefault("WANDB_MODE", "offline")
    on_gpu = torch.cuda.is_available()
    if on_gpu and precision.dtype == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UsageError(
            f"precision.dtype: bf16 is not allowed: {torch.cuda.get_device_name()} has no units for it; "
            "allowed: fp16, fp32"
        )
    return TrainingArguments(
        output_dir=str(engine.output_dir / checkpoint.FOLDER),
        run_name=engine.output_dir.name,
        deepspeed=deepspeed_json(settings, batch),
        use_cpu=not on_gpu,
        max_steps=steps,
        per_device_train_batch_size=batch.micro,
        per_device_eval_batch_size=batch.micro,
        gradient_accumulation_steps=batch.accumulation,
        learning_rate=settings.optimizer.lr.max,
        max_grad_norm=settings.optimizer.grad_clip,
        bf16=precision.dtype == "bf16",
        fp16=precision.dtype == "fp16",
        logging_steps=engine.logging_freq,
        logging_first_step=True,
        # A loss that is not finite must reach the log.
        logging_nan_inf_filter=False,
        eval_strategy="steps" if engine.eval_freq else "no",
        eval_steps=engine.eval_freq or None,
        save_steps=engine.save_steps,
        save_strategy="steps",
        seed=engine.seed,
        # The samples are already shuffled.
        train_sampling_strategy="sequential",
        dataloader_num_workers=reader_workers,
        dataloader_pin_memory=on_gpu,
        remove_unused_columns=False,
        prediction_loss_only=True,
        average_tokens_across_devices=False,
        torch_compile=engine.compile,
        report_to=list(engine.tracking) or "none",
        disable_tqdm=True,
    )


def first(samples: Any, number: int) -> Any:
    """Return the first `number` samples of a set, or all if it has fewer; None if there are none."""
    if samples is None or not number:
        return None
    return Subset(samples, range(min(number, len(samples))))


def micro_batches_of_rank(samples: int, micro: int, rank: int, ranks: int) -> list[list[int]]:
    """Return the micro-batches of a rank as sample indices; each rank has the same number of them.

    The ranks take turns, as in training. A rank without samples in the last turn gets the first micro-batch again.
    """
    batches = [[*range(at, min(at + micro, samples))] for at in range(0, samples, micro)]
    turns = -(-len(batches) // ranks)
    batches += [batches[0]] * (turns * ranks - len(batches))
    return batches[rank::ranks]

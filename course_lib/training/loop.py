"""The training loop: `train(run)` trains a run, or resumes it, to its last step. Nothing of the loop is elsewhere.

One rank trains in the calling process, such as a notebook's kernel: a breakpoint in the loss stops, and an error shows
where it happened. Several ranks are processes that each run the same `course` command, and so this same function;
starter.py starts them.

The run folder contains config.yaml, deepspeed.json, data.json, tokenizer/, log.jsonl, checkpoints/, tensorboard/ and,
with several ranks, output.txt, all that they print.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import DataLoader

from course_lib.errors import CourseError, UsageError
from course_lib.notebooks.progress import progress
from course_lib.training import checkpoint, engines, log, nodes, run_dir, starter, state
from course_lib.training.freezing import digests, require_unchanged
from course_lib.training.interruptions import listening
from course_lib.training.lr_schedule import learning_rate, learning_rate_at_time
from course_lib.training.process_state import as_before, seed_all, use_threads
from course_lib.training.rank_end import advising_on_memory
from course_lib.training.ranks import Rank, joined, started_as_rank
from course_lib.training.run import Run
from course_lib.training.settings import ResolvedBatch, RunConfig
from course_lib.training.trackers import Trackers

PRINT: Callable[[str], None] = partial(print, flush=True)


@dataclass(frozen=True)
class Trained:
    """The result of a training run."""

    folder: Path
    steps: int
    log: list[dict[str, Any]]
    # Whether this process is to go on with the result; of several ranks only one is.
    goes_on: bool = True


def train(run: Run, resume: bool = False, on_message: Callable[[str], None] = PRINT) -> Trained:
    """Train a run, or continue it, to the last step; `on_message` gets each line of the log.

    Raises UsageError or CourseError if settings, data or machine do not allow the training, and if it was interrupted:
    its exit_code then says by what.
    """
    if not started_as_rank() and (found := nodes.find(run.settings)).ranks > 1:
        return _train_on_ranks(run, found, resume, on_message)

    with ExitStack() as stack:
        # 1. This process, and its rank. What training changes in the process is put back at the end.
        stack.enter_context(advising_on_memory(run.settings))
        stack.enter_context(as_before(run.settings))
        rank = stack.enter_context(joined(run.settings))
        say = on_message if rank.first else silent

        # 2. The run's folder, which the first rank alone reads and writes, except for checkpoints.
        if rank.first:
            stack.enter_context(run_dir.sole_user(run.settings.engine.output_dir))
            run = run_dir.with_batch_of_run(run, rank.ranks, say)
        run = rank.broadcast(run)
        settings: RunConfig = run.settings
        chosen, folder = settings.engine, settings.engine.output_dir
        if problem := settings.problem_with_ranks(rank.ranks):
            raise UsageError(problem)
        engines.require_units(settings.precision.dtype, rank.device)
        run.check()
        batch = settings.batch.resolve(rank.ranks)
        # None if the time decides.
        steps = run.steps(batch)
        if remark := run.summary():
            say(remark)
        start = rank.broadcast(run_dir.prepare(run, batch, resume, say) if rank.first else 0)
        if rank.ranks > 1:
            run_dir.require_same_inputs(run, rank)
        if steps and start >= steps:
            return Trained(folder, start, log.read(folder), rank.reports)

        # 3. Samples and model. The same seed gives the same weights on every rank.
        data = run.data(steps * batch.total if steps else None)
        seed_all(chosen.seed)
        with engines.sharded_construction(settings, batch, rank.ranks):
            model = run.model()
        if rank.ranks == 1:
            use_threads(settings, model)
        if not start:
            run.prepare(model, rank.device)
        engine = engines.build(run, model, batch, rank)
        # With the loss, because the logits are the largest tensors of all.
        loss_of = torch.compile(run.loss, dynamic=False) if engine.compiles_loss else run.loss
        seed_all(chosen.seed)
        seconds_before = 0.0
        if start:
            seconds_before = state.load(engine, checkpoint.at(folder, start), rank).get("seconds", 0.0)
        if not steps and chosen.max_seconds and seconds_before >= chosen.max_seconds:
            return Trained(folder, start, log.read(folder), rank.reports)
        frozen = digests(model)
        engine.train(True)

        validation = _first(data.validation, chosen.eval_iters * batch.total)
        test_iters = 10 * chosen.eval_iters if chosen.test_iters is None else chosen.test_iters
        test = _first(data.test, test_iters * batch.total)
        positions = _positions(start, steps, batch, rank)
        batches = _micro_batches(run, data.train, data.collate, positions, rank)
        meter = log.Meter(
            tokens_per_step=batch.total * data.tokens_per_sample,
            ranks=rank.ranks,
            flops_per_token=data.flops_per_token,
            peak_flops=log.peak_flops(chosen.peak_tflops, rank.device),
        )
        trackers = stack.enter_context(Trackers(settings, rank))
        bar = stack.enter_context(progress(steps, "step", run.title(), start))

        # From here on, a request to stop is noted, and obeyed after a step; before, it ends the run at once.
        stop_request = stack.enter_context(listening())

        def report(kind: str, step: int, **values: Any) -> None:
            if rank.first:
                entry = {"kind": kind, "step": step} | values
                log.append(folder, entry)
                trackers.write(entry)
                with stop_request.noting_closed_output():
                    bar.clear()
                    say(log.line(entry))

        # 4. Steps. The sum of the losses stays on the device: only a line of the log waits for it.
        losses, last_line = torch.zeros((), device=rank.device), start
        meter.restart(start)
        for step in count(start + 1):
            # A step's loss is the mean over the targets of all micro-batches of all ranks.
            with meter.reading():
                micro_batches = [next(batches) for _ in range(batch.accumulation)]
                targets = [run.targets(micro_batch) for micro_batch in micro_batches]
                all_targets = rank.sum(sum(targets))

            for micro_batch, number in zip(micro_batches, targets, strict=True):
                with engine.precision():
                    loss = loss_of(engine.module, micro_batch)
                # The engine takes the mean of the ranks' gradients, so a rank's part counts `ranks` times.
                loss = loss * (number * rank.ranks / all_targets)
                engine.backward(loss)
                losses += loss.detach()

            # Compilation, in the first passes, is no part of the training time.
            if chosen.compile and step == start + 1:
                meter.restart(start)
            if steps:
                rate = learning_rate(settings.optimizer.lr, step, steps)
                is_last = step == steps
            else:
                seconds = seconds_before + meter.seconds()
                assert chosen.max_seconds
                rate = learning_rate_at_time(settings.optimizer.lr, seconds, chosen.max_seconds)
                is_last = seconds >= chosen.max_seconds
            norm = engine.step(rate)
            bar.update()

            # A line of the log.
            is_logged = step % chosen.logging_freq == 0 or step == 1 or is_last
            if is_logged:
                mean = rank.sum(losses).item() / rank.ranks / (step - last_line)
                losses, last_line = torch.zeros_like(losses), step
                _require_finite(mean, step, folder)
                values = {"loss": mean, "learning_rate": rate}
                if norm is not None:
                    values["grad_norm"] = float(norm)
                values |= meter.read(step) | {"memory": log.peak_memory(rank.device)} | engine.fp16_facts()
                report("train", step, **values, epoch=step * batch.total / data.samples_per_epoch)
            # All ranks stop after the same step. They ask each other without the device, which does not wait.
            stops = rank.any(stop_request.cause is not None)

            if validation and chosen.eval_freq and step % chosen.eval_freq == 0 and not stops:
                with meter.stopped():
                    report("eval", step, **_held_out(run, engine, loss_of, validation, data.collate, batch, rank))

            if step % chosen.save_steps == 0 or is_last or stops:
                with meter.stopped():
                    _require_finite(float(losses), step, folder)
                    require_unchanged(model, frozen)
                    _save(run, engine, step, seconds_before + meter.seconds(), rank)
            if is_last:
                break
            if stops:
                raise stop_request.error(step, steps, folder)

        if test:
            report("test", step, **_held_out(run, engine, loss_of, test, data.collate, batch, rank))
        return Trained(folder, step, log.read(folder), rank.reports)


def _train_on_ranks(run: Run, found: nodes.Nodes, resume: bool, on_message: Callable[[str], None]) -> Trained:
    """Start the ranks, each of which calls `train`, and wait for them. They check again what is checked here."""
    if not run.command:
        raise UsageError(f"launch.ranks: {found.ranks} is not allowed: no command trains {run.title()}; allowed: 1")
    run = run_dir.with_batch_of_run(run, found.ranks, on_message)
    settings: RunConfig = run.settings
    folder = settings.engine.output_dir
    if problem := settings.problem_with_ranks(found.ranks):
        raise UsageError(problem)
    run.check()
    batch = settings.batch.resolve(found.ranks)
    steps = run.steps(batch)
    # Only one rank trains for a time.
    assert steps
    with run_dir.sole_user(folder):
        start, _ = run_dir.require_usable(run, batch, resume, run.identity)
    if start < steps:
        starter.start(run, found, steps, resume, on_message)
    return Trained(folder, max(start, steps), log.read(folder))


def _positions(start: int, steps: int | None, batch: ResolvedBatch, rank: Rank) -> Iterator[range]:
    """Yield where the samples of each micro-batch of a rank are in the training set, from step `start` + 1 on.

    In a step, the ranks take turns.
    """
    for step in count(start) if steps is None else range(start, steps):
        for turn in range(batch.accumulation):
            first = step * batch.total + (turn * rank.ranks + rank.number) * batch.micro
            yield range(first, first + batch.micro)


def _micro_batches(
    run: Run, samples: Any, collate: Callable[[list[Any]], Any], positions: Iterable[range], rank: Rank
) -> Iterator[Any]:
    """Yield micro-batches on the rank's device. To a GPU, they are copied while it computes."""
    on_gpu = rank.device.type == "cuda"
    loader = DataLoader(
        samples,
        batch_sampler=positions,  # type: ignore[arg-type]
        collate_fn=collate,
        num_workers=run.reader_workers(),
        pin_memory=on_gpu,
        # With another generator than the model, whose random numbers do not depend on reading.
        generator=torch.Generator(),
    )
    for micro_batch in loader:
        yield {name: tensor.to(rank.device, non_blocking=True) for name, tensor in micro_batch.items()}


@torch.no_grad()
def _held_out(
    run: Run,
    engine: engines.Engine,
    loss_of: Callable[[Any, Any], Any],
    samples: Any,
    collate: Callable[[list[Any]], Any],
    batch: ResolvedBatch,
    rank: Rank,
) -> dict[str, float]:
    """Return the mean loss over all targets of the samples [nats per token], and the seconds that this took."""
    began = perf_counter()
    positions = [range(at, min(at + batch.micro, len(samples))) for at in range(0, len(samples), batch.micro)]
    # Every rank takes as many turns, because ZeRO stage 3 needs all ranks; those without samples add nothing.
    turns = -(-len(positions) // rank.ranks)
    mine = [turn * rank.ranks + rank.number for turn in range(turns)]
    read = [positions[min(index, len(positions) - 1)] for index in mine]
    sums = torch.zeros(2, dtype=torch.float64, device=rank.device)
    engine.train(False)
    for index, micro_batch in zip(mine, _micro_batches(run, samples, collate, read, rank), strict=True):
        with engine.precision():
            loss = loss_of(engine.module, micro_batch)
        if index < len(positions):
            targets = run.targets(micro_batch)
            sums += torch.stack([loss.double() * targets, targets.double()])
    engine.train(True)
    total, number = rank.sum(sums).tolist()
    return {"loss": total / number, "seconds": perf_counter() - began}


def _first(samples: Any, number: int) -> Any:
    """Return the first `number` samples of a set, or all if it has fewer; None if there are none."""
    if samples is None or not number:
        return None
    return torch.utils.data.Subset(samples, range(min(number, len(samples))))


def _save(run: Run, engine: engines.Engine, step: int, seconds: float, rank: Rank) -> None:
    """Save a checkpoint, mark it as complete, and then remove older ones: the run may be killed at any time."""
    folder = run.settings.engine.output_dir
    target = checkpoint.at(folder, step)
    if rank.first:
        checkpoint.record(folder, step)
        target.mkdir(parents=True, exist_ok=True)
    rank.barrier()
    state.save(engine, target, rank, {"step": step, "seconds": seconds}, run.saves_frozen)
    rank.barrier()
    if rank.first:
        checkpoint.mark_complete(target)
        checkpoint.prune(folder, run.settings.engine.keep_checkpoints)


def _require_finite(loss: float, step: int, folder: Path) -> None:
    """Raise CourseError if a loss is not finite."""
    if not torch.isfinite(torch.tensor(loss)):
        whole = checkpoint.whole_checkpoints(folder)
        last = f"; the last complete checkpoint is {whole[0].name}" if whole else ""
        raise CourseError(
            f"the loss is {loss} at step {step}{last}: lower optimizer.lr.max, "
            "lengthen its warm-up, clip gradients (optimizer.grad_clip), or train in bf16 instead of fp16"
        )


def silent(_message: str) -> None:
    """Print nothing, as `on_message`."""

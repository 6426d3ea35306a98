"""The training loop: `train(run)` trains a run, or resumes it, to its last step. Nothing of the loop is elsewhere.

One rank trains in the calling process, such as a notebook's kernel: a breakpoint in the loss stops, and an error shows
where it happened. Several ranks are processes that each run the same `course` command, and so this same function;
starter.py starts them.

The run folder contains config.yaml, deepspeed.json, data.json, tokenizer/, log.jsonl, checkpoints/, tensorboard/ and,
with several ranks, output.txt, all that they print.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import DataLoader

from course_lib.errors import CourseError
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.training import checkpoint, engines, log, nodes, planner, run_dir, starter, state
from course_lib.training.engines import Engine
from course_lib.training.freezing import digests, require_unchanged
from course_lib.training.interruptions import StopRequest, listening
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.process_state import as_before, seed_all
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


def train(run: Run, resume: bool = False, on_message: Callable[[str], None] = PRINT) -> Trained | None:
    """Train a run, or continue it, to the last step; `on_message` gets each line of the log.

    Returns None in a process that is one of several ranks and has nothing to do afterwards. Raises UsageError or
    CourseError if settings, data or machine do not allow the training, and if it was interrupted: its exit_code then
    says by what.
    """
    settings: RunConfig = run.settings
    if not started_as_rank():
        found = nodes.find(settings)
        if found.ranks > 1:
            run.check()
            steps = run.steps(settings.batch.resolve(found.ranks))
            starter.start(run, found, steps, resume, on_message)
            return Trained(settings.engine.output_dir, steps, log.read(settings.engine.output_dir))
    with ExitStack() as stack:
        stack.enter_context(as_before(settings))
        request = stack.enter_context(listening())
        rank = stack.enter_context(joined(settings))
        say = on_message if rank.first else lambda _: None
        # The first rank alone reads and writes the run's folder; the others only add their part of a checkpoint.
        if rank.first:
            stack.enter_context(run_dir.sole_user(settings.engine.output_dir))
            run = run_dir.with_batch_of_run(run, rank.ranks, say)
        run = rank.broadcast(run)
        run.check()
        batch = run.settings.batch.resolve(rank.ranks)
        steps = run.steps(batch)
        if rank.first and (remark := run.summary()):
            say(remark)
        start = rank.broadcast(run_dir.prepare(run, batch, resume, say) if rank.first else None)
        if start < steps:
            _train(run, batch, rank, start, steps, request, say)
        folder = run.settings.engine.output_dir
        return Trained(folder, max(start, steps), log.read(folder)) if rank.first else None


def _train(
    run: Run,
    batch: ResolvedBatch,
    rank: Rank,
    start: int,
    steps: int,
    request: StopRequest,
    say: Callable[[str], None],
) -> None:
    """Train from step `start` + 1 to `steps`, or until a stop is requested, and evaluate on the test set."""
    settings: RunConfig = run.settings
    chosen, folder = settings.engine, settings.engine.output_dir

    # Model and samples. The same seed gives the same weights on every rank.
    seed_all(chosen.seed)
    with engines.sharded_construction(settings, batch, rank.ranks):
        model = run.model()
    data = run.data(steps * batch.total)
    if not start:
        run.prepare(model, rank.device)
    engine = engines.build(run, model, batch, rank)
    seed_all(chosen.seed)
    if start:
        state.load(engine, checkpoint.at(folder, start), rank)
    frozen = digests(model)

    validation = _first(data.validation, chosen.eval_iters * batch.total)
    test_iters = 10 * chosen.eval_iters if chosen.test_iters is None else chosen.test_iters
    test = _first(data.test, test_iters * batch.total)
    batches = _micro_batches(run, data.train, data.collate, _places(start, steps, batch, rank), rank)
    meter = log.Meter(
        tokens_per_step=batch.total * data.tokens_per_sample,
        ranks=rank.ranks,
        flops_per_token=data.flops_per_token,
        peak_flops=log.peak_flops(chosen.peak_tflops),
    )
    meter.restart(start)
    # The sum of the losses since the last line of the log, on the device: reading it would wait for the device.
    losses, lines_from = torch.zeros((), device=rank.device), start

    with Trackers(settings, rank) as trackers, progress(steps, "step", run.title(), start) as bar:

        def report(kind: str, step: int, **values: Any) -> None:
            entry = {"kind": kind, "step": step} | values
            log.append(folder, entry)
            trackers.write(entry)
            bar.clear()
            say(log.line(entry))

        for step in range(start + 1, steps + 1):
            # Read the micro-batches, and count the targets of all ranks: a step's loss is the mean over all of them.
            with meter.reading():
                micro_batches = [next(batches) for _ in range(batch.accumulation)]
                targets = [run.targets(micro_batch) for micro_batch in micro_batches]
                all_targets = rank.sum(sum(targets))

            # Forward and backward pass. Ranks are averaged, so a rank's part of the loss counts `ranks` times.
            for micro_batch, number in zip(micro_batches, targets, strict=True):
                loss = engine.loss(micro_batch) * (number * rank.ranks / all_targets)
                engine.backward(loss)
                losses += loss.detach()

            rate = learning_rate(settings.optimizer.lr, step, steps)
            norm = engine.step(rate)
            bar.update()

            # A line of the log. Only here does the loop wait for the device, and do several ranks agree to stop.
            is_logged = step % chosen.logging_freq == 0 or step in (1, steps)
            if is_logged:
                mean = rank.sum(losses).item() / rank.ranks / (step - lines_from)
                losses, lines_from = torch.zeros_like(losses), step
                _require_finite(mean, step, folder)
                values = {"loss": mean, "learning_rate": rate}
                if norm is not None:
                    values["grad_norm"] = float(norm)
                values |= meter.read(step) | {"memory": log.peak_memory()} | engine.fp16_facts()
                if rank.first:
                    report("train", step, **values, epoch=step * batch.total / data.samples_per_epoch)
            is_last = step == steps
            stops = (is_logged or rank.ranks == 1) and rank.any(request.cause is not None) and not is_last

            # Held-out loss and checkpoint.
            if validation and chosen.eval_freq and step % chosen.eval_freq == 0 and not stops:
                with meter.stopped():
                    began = perf_counter()
                    loss_now = _held_out_loss(run, engine, validation, data.collate, batch.micro, rank)
                    if rank.first:
                        report("eval", step, loss=loss_now, seconds=perf_counter() - began)
            if step % chosen.save_steps == 0 or is_last or stops:
                with meter.stopped():
                    _require_finite(float(losses), step, folder)
                    require_unchanged(model, frozen)
                    _save(run, engine, step, rank)
            if stops:
                raise request.error(step, steps, folder)

        if test:
            began = perf_counter()
            loss_now = _held_out_loss(run, engine, test, data.collate, batch.micro, rank)
            if rank.first:
                report("test", steps, loss=loss_now, seconds=perf_counter() - began)


def _places(start: int, steps: int, batch: ResolvedBatch, rank: Rank) -> list[range]:
    """Return the samples of each micro-batch of a rank, from step `start` + 1 on. In a step, the ranks take turns."""
    places = []
    for step in range(start, steps):
        for turn in range(batch.accumulation):
            first = step * batch.total + (turn * rank.ranks + rank.number) * batch.micro
            places.append(range(first, first + batch.micro))
    return places


def _micro_batches(
    run: Run, samples: Any, collate: Callable[[list[Any]], Any], places: list[Any], rank: Rank
) -> Iterator[Any]:
    """Yield micro-batches on the rank's device. On a GPU, they are copied while it computes."""
    on_gpu = rank.device.type == "cuda"
    loader = DataLoader(
        samples,
        batch_sampler=places,
        collate_fn=collate,
        num_workers=run.reader_workers(),
        pin_memory=on_gpu,
        # A generator of its own: reading must not change what the model draws.
        generator=torch.Generator(),
    )
    for micro_batch in loader:
        yield {name: tensor.to(rank.device, non_blocking=True) for name, tensor in micro_batch.items()}


@torch.no_grad()
def _held_out_loss(
    run: Run, engine: Engine, samples: Any, collate: Callable[[list[Any]], Any], micro: int, rank: Rank
) -> float:
    """Return the mean loss over all targets of the samples [nats per token]."""
    places = [range(at, min(at + micro, len(samples))) for at in range(0, len(samples), micro)]
    # Every rank takes as many turns, because ZeRO stage 3 needs all ranks; those without samples add nothing.
    turns = -(-len(places) // rank.ranks)
    mine = [places[min(turn * rank.ranks + rank.number, len(places) - 1)] for turn in range(turns)]
    sums = torch.zeros(2, dtype=torch.float64, device=rank.device)
    engine.model.eval()
    for turn, micro_batch in enumerate(_micro_batches(run, samples, collate, mine, rank)):
        loss, targets = engine.loss(micro_batch).double(), run.targets(micro_batch).double()
        if turn * rank.ranks + rank.number < len(places):
            sums += torch.stack([loss * targets, targets])
    engine.model.train()
    total, number = rank.sum(sums).tolist()
    return float(total / number)


def _first(samples: Any, number: int) -> Any:
    """Return the first `number` samples of a set, or all if it has fewer; None if there are none."""
    if samples is None or not number:
        return None
    return torch.utils.data.Subset(samples, range(min(number, len(samples))))


def _save(run: Run, engine: Engine, step: int, rank: Rank) -> None:
    """Save a checkpoint, mark it as complete, and then remove older ones: the run may be killed at any time."""
    folder = run.settings.engine.output_dir
    target = checkpoint.at(folder, step)
    if rank.first:
        checkpoint.record(folder, step)
        target.mkdir(parents=True, exist_ok=True)
    rank.barrier()
    state.save(engine, target, rank, facts={"step": step})
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

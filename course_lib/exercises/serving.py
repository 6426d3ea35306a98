"""Exercises for chapter 7: a tensor for several ranks, an unseen damage, a step of batching, slots, number formats."""

import os
import shutil
from heapq import heapreplace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from course_lib.exercises import Chapter, Exercise, Expression
from course_lib.language.words import tr

if TYPE_CHECKING:
    from torch import Tensor


def convert(weight: "Tensor", heads: int, ranks: int, family: str) -> "list[Tensor]":
    """Split a query/key/value weight into a part [in, 3, hidden / ranks] for each rank."""
    hidden = min(weight.shape)
    if family == "gptneox":
        columns = weight.T.reshape(hidden, heads, 3, hidden // heads)
        weight = columns.transpose(1, 2)
    return list(weight.reshape(hidden, 3, hidden).chunk(ranks, dim=-1))


def step(
    waiting: list[tuple[int, int]], running: list[tuple[int, int]], slots: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]:
    """Return who waits, who runs on and who is done after one step; a job is (number, tokens that are left)."""
    free = slots - len(running)
    running, waiting = running + waiting[:free], waiting[free:]
    running = [(job, left - 1) for job, left in running]
    done = [job for job, left in running if left == 0]
    return waiting, [(job, left) for job, left in running if left > 0], done


def _check_convert(answer: Any) -> str | None:
    """Compare with what the exporter makes of a numbered weight, and recognize the usual mistakes."""
    import torch

    from course_lib.serving.layout import FtConfig, weights
    from course_lib.serving.weight_map import stored

    for family, heads, size, ranks in (("gpt", 4, 2, 2), ("gptneox", 4, 2, 2), ("gptneox", 6, 3, 3), ("gpt", 6, 3, 3)):
        hidden = heads * size
        shape = (hidden, 3 * hidden) if family == "gpt" else (3 * hidden, hidden)
        weight = torch.arange(3.0 * hidden * hidden).reshape(shape)
        config = FtConfig(family, "x", heads, size, 4 * hidden, 1, 9, 1, 2, "fp32", ranks)  # type: ignore[arg-type]
        spec = next(spec for spec in weights(config).values() if spec.qkv)
        expected = torch.stack(stored(weight, spec, config).chunk(ranks, dim=2))
        call = tr("{family}, {heads} heads, {ranks} ranks", family=family, heads=heads, ranks=ranks)
        parts = [torch.as_tensor(part) for part in answer(weight.clone(), heads, ranks, family)]
        shapes, wanted = [list(part.shape) for part in parts], [hidden, 3, hidden // ranks]
        if shapes != [wanted] * ranks:
            return tr(
                "{call}: expected one part {wanted} for each rank, got {shapes}.",
                call=call,
                wanted=wanted,
                shapes=shapes,
            )
        if not torch.equal(torch.stack(parts), expected):
            return f"{call}: {tr(_mistake(torch.stack(parts), weight, heads, ranks, family))}."
    return None


def _mistake(parts: "Tensor", weight: "Tensor", heads: int, ranks: int, family: str) -> str:
    """Return advice for parts of the right shape with the wrong numbers."""
    import torch

    hidden = min(weight.shape)
    # What each mistake makes of the weight, before or after the split.
    turned = weight if family == "gpt" else weight.T
    if family == "gpt":
        reordered = turned.reshape(hidden, heads, 3, -1).transpose(1, 2)
        wrong = {"the columns of a GPT-2 have the right order already: only split": reordered}
    else:
        unturned = weight.reshape(heads, 3, -1, hidden).transpose(0, 1)
        by_head = "the columns still come head by head: view them as [head, q/k/v, size] and swap the first two"
        wrong = {by_head: turned, "transpose first: the matrix is [out, in], the engine wants [in, out]": unturned}
        wrong["neither transposed nor reordered"] = weight
    for advice, whole in wrong.items():
        if torch.equal(parts, torch.stack(whole.reshape(hidden, 3, hidden).chunk(ranks, dim=2))):
            return advice
    whole = torch.stack([part.reshape(hidden, -1) for part in parts])
    if torch.equal(whole.transpose(0, 1).reshape(hidden, -1), turned):
        return "each rank needs its heads of queries, of keys and of values: make three axes before you split the last"
    return "the parts have the right shape, but numbers in wrong places"


def _effect(damage: Any) -> tuple[list[str], float]:
    """Damage a copy of the exported folder; return what `inspect` finds, and by how much the loss rises [nats]."""
    import numpy as np
    import torch

    from course_lib.checkpoints.number_formats import NUMPY
    from course_lib.pretrain import text_codec
    from course_lib.serving import ini, layout, reader
    from course_lib.serving.check import inspect
    from course_lib.serving.products import WEIGHTS
    from course_lib.world.genres import documents

    exported = WEIGHTS.path()
    folder, ranks = layout.find(exported)
    config, _ = ini.read(folder, ranks)
    name = next(spec for spec in layout.tensors(config) if spec.qkv).files(ranks)[0]
    ids = torch.tensor([text_codec.load(exported / "tokenizer").encode(next(documents(1, seed=6)).text)])

    def loss(place: Path) -> float:
        with torch.inference_mode():
            logits = reader.load(place).model(ids).logits[0, :-1]
        return float(torch.nn.functional.cross_entropy(logits.float(), ids[0, 1:]))

    with TemporaryDirectory(dir=exported.parent) as copy:
        place = Path(shutil.copytree(folder, Path(copy, folder.name), copy_function=os.link))
        numbers = np.fromfile(place / name, NUMPY.get(config.dtype, "<u2"))
        (place / name).unlink()
        np.asarray(damage(numbers)).tofile(place / name)
        findings = [str(finding) for finding in inspect(place, values=True).findings]
        return findings, 0.0 if findings else loss(place) - loss(folder)


RISE = 1.0  # by how much the loss has to rise [nats per token]


def _check_damage(answer: Any) -> str | None:
    findings, rise = _effect(answer)
    if findings:
        return tr("course ft inspect finds it: {finding}", finding=findings[0])
    if rise >= RISE:
        return None
    advice = tr("nothing is found, but the loss rises by only {rise:.2f} nats", rise=rise)
    return tr("{advice}; {wanted:g} is wanted.", advice=advice, wanted=RISE)


BATCH, FEWEST = 16, 20  # slots of the static server; texts that a judgement needs


def steps(lengths: list[int], slots: int, continuous: bool) -> int:
    """Return the steps until all texts are finished, all of which wait from the start."""
    if not continuous:
        return sum(max(lengths[at : at + slots]) for at in range(0, len(lengths), slots))
    ends = [0] * slots
    for length in lengths:
        # the slot that is free first
        heapreplace(ends, ends[0] + length)
    return max(ends)


def _check_slots(answer: Any) -> str | None:
    """Simulate the learner's number of slots, and one less, on the lengths that the learner measured."""
    slots, lengths = answer
    lengths = [int(length) for length in lengths]
    if len(lengths) < FEWEST or min(lengths) < 1:
        return tr("hand in the lengths of at least {fewest} texts, in tokens.", fewest=FEWEST)
    goal, needed = steps(lengths, BATCH, False), steps(lengths, slots, True)
    allowed = tr("static batching with {batch} needs {goal} steps", batch=BATCH, goal=goal)
    if needed > goal:
        return tr("{slots} slots are too few: {needed} steps; {allowed}.", slots=slots, needed=needed, allowed=allowed)
    if slots > 1 and (fewer := steps(lengths, slots - 1, True)) <= goal:
        return tr("{slots} slots are enough: {fewer} steps; {allowed}.", slots=slots - 1, fewer=fewer, allowed=allowed)
    return None


FORMATS = ("fp32", "fp16", "bf16")


def _check_format(answer: Any) -> str | None:
    """Measure every format with the notebook's function and judge the choice by that."""
    choice, measure = answer
    # format → bytes, change of the logits [nats]
    measured = {name: measure(name) for name in FORMATS}
    whole = measured["fp32"][0]
    if (ratio := measured[choice][0] / whole) > 0.5:
        return tr("{choice} takes {ratio:.2f} × the bytes of fp32; half is allowed.", choice=choice, ratio=ratio)
    least, best = min((change, name) for name, (size, change) in measured.items() if size <= whole / 2)
    if measured[choice][1] <= least:
        return None
    off = tr("{off:.2g} instead of {least:.2g} nats", off=measured[choice][1], least=least)
    return tr("{choice} has the size of {best}, but its logits are off by {off}.", choice=choice, best=best, off=off)


CHAPTER = Chapter(
    Exercise(
        "write convert(weight, heads, ranks, family): the parts of a query/key/value weight for each rank",
        _check_convert,
        (
            "Of a GPT-2: view [in, 3 · hidden] as [in, 3, hidden], then split the last axis. What must happen before "
            "that to a GPT-NeoX, whose rows are query, key and value of head 0, then those of head 1?",
            "Transpose to [in, 3 · hidden], view as [in, head, 3, size], swap the axes head and 3, reshape to "
            "[in, 3, hidden]; then weight.chunk(ranks, dim=-1).",
        ),
        convert,
        "A rank gets whole heads, because the last axis has them one after the other. The exporter does the same.",
    ),
    Exercise(
        "write damage(numbers): other numbers for the file, which inspect accepts and which spoil the model",
        _check_damage,
        (
            "`inspect` compares names and sizes, and looks for NaN and infinity. What does it not look at?",
            "Keep the size, the type and even the numbers, and change their order.",
        ),
        Expression("lambda numbers: numbers[::-1].copy()"),
        "Any other order will do, zeros too. A sum over the file finds zeros, but no order. Only a comparison of what "
        "the folder computes finds both.",
    ),
    Exercise(
        "write step(waiting, running, slots): one step of continuous batching",
        (
            (([(0, 2), (1, 3), (2, 1)], [], 2), "each job in a slot writes one token; the third has to wait"),
            (([(5, 4)], [(3, 1), (4, 2)], 3), "a waiting job joins as soon as a slot is free, not when all are free"),
            (([(7, 3)], [(5, 2), (6, 2)], 2), "no slot is free: the waiting job stays where it is"),
            (([(2, 1), (3, 5)], [(1, 2)], 2), "a job that joins writes its first token in the same step"),
            (([(4, 2), (5, 2), (6, 2)], [], 2), "the first that came are the first to join"),
            (([], [(1, 1), (2, 1)], 2), "a job without tokens left leaves the batch and is named in the third result"),
        ),
        (
            "Three moves: fill the free slots from the front of `waiting`; take one from each `left`; sort out who "
            "has none left.",
            "free = slots - len(running); running = running + waiting[:free]; waiting = waiting[free:]; then two list "
            "comprehensions.",
        ),
        step,
        "A scheduler also asks whether memory for the new text's keys and values is free; the course's has a limit of "
        "64 texts.",
    ),
    Exercise(
        f"find the fewest slots with which continuous batching needs no more steps than static batching with {BATCH}",
        _check_slots,
        (
            "Call simulate(step, lengths, slots) for several numbers of slots; the last end is the number of steps.",
            "Print the steps for 8 to 16 slots beside those of simulate(static, lengths, 16).",
        ),
        Expression("(next(n for n in range(1, 17) if steps_of(step, n) <= steps_of(static, 16)), lengths)"),
        "The more equal the lengths, the less a free slot is worth: for texts of one length, 16 slots need 16.",
    ),
    Exercise(
        "choose the number format for serving: at most half of fp32's bytes, and the smallest change in the logits",
        _check_format,
        (
            "Measure all three formats; the sizes leave two of them.",
            "Which of the two has more bits for the digits of a number?",
        ),
        Expression('("fp16", measure)'),
        "fp16 has 11 significant bits (10 of them stored) and reaches 65504; bf16 has 8 (7 stored) and the range of "
        "fp32. A model whose weights or activations exceed 65504 needs bf16; the export refuses such weights in fp16. "
        "The original backend for GPT-NeoX would run bf16 weights in fp32.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

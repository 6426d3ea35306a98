"""Exercises for chapter 7: a tensor for several ranks, a damaged module, a stream, batching, slots, number formats."""

from collections.abc import Callable
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from course_lib.exercises import Case, Chapter, Code, Exercise, from_notebook
from course_lib.language.words import tr, tr_noop

if TYPE_CHECKING:
    from torch import Tensor


# Exercise 7.1: convert
def _check_convert(answer: Any) -> str | None:
    """Compare with what the exporter makes of a numbered weight, and recognize the usual mistakes."""
    import torch

    from course_lib.serving.layout import FtConfig, weights
    from course_lib.serving.weight_map import to_ft

    for family, heads, size, ranks in (("gpt", 4, 2, 2), ("gptneox", 4, 2, 2), ("gptneox", 6, 3, 3), ("gpt", 6, 3, 3)):
        hidden = heads * size
        shape = (hidden, 3 * hidden) if family == "gpt" else (3 * hidden, hidden)
        weight = torch.arange(3.0 * hidden * hidden).reshape(shape)
        config = FtConfig(family, "x", heads, size, 4 * hidden, 1, 9, 1, 2, "fp32", ranks)  # type: ignore[arg-type]
        spec = next(spec for spec in weights(config).values() if spec.qkv)
        expected = torch.stack(to_ft(weight, spec, config).chunk(ranks, dim=2))
        call = tr("{family}, {heads} heads, {ranks} ranks", family=family, heads=heads, ranks=ranks)
        parts = [torch.as_tensor(part) for part in answer(weight.clone(), heads, ranks, family)]
        shapes, wanted = [list(part.shape) for part in parts], [hidden, 3, hidden // ranks]
        if shapes != [wanted] * ranks:
            message = tr_noop("{call}: expected one part {wanted} for each rank, got {shapes}.")
            return tr(message, call=call, wanted=wanted, shapes=shapes)
        together = torch.stack(parts)
        if torch.equal(together, expected):
            continue
        advice = tr_noop("the parts have the right shape, but numbers in wrong places")
        for wrong, text in _mistakes(weight, heads, ranks, family):
            if torch.equal(together, wrong):
                advice = text
                break
        return tr("{call}: {advice}.", call=call, advice=tr(advice))
    return None


def _mistakes(weight: "Tensor", heads: int, ranks: int, family: str) -> list[tuple["Tensor", str]]:
    """Return what usual mistakes make of a weight, [ranks, hidden, 3, hidden / ranks], each with its advice."""
    import torch

    hidden = min(weight.shape)

    def split(whole: "Tensor") -> "Tensor":
        return torch.stack(whole.reshape(hidden, 3, hidden).chunk(ranks, dim=2))

    turned = weight if family == "gpt" else weight.T
    flat = torch.stack([part.reshape(hidden, 3, -1) for part in turned.chunk(ranks, dim=1)])
    too_early = tr_noop(
        "each rank needs its heads of queries, of keys and of values: make three axes before you split the last"
    )
    if family == "gpt":
        reordered = weight.reshape(hidden, heads, 3, -1).transpose(1, 2)
        return [
            (split(reordered), tr_noop("the columns of a GPT-2 have the right order already: only split")),
            (flat, too_early),
        ]
    unturned = weight.reshape(heads, 3, -1, hidden).transpose(0, 1)
    return [
        (
            split(turned),
            tr_noop("the columns still come head by head: view them as [head, q/k/v, size] and swap the first two"),
        ),
        (split(unturned), tr_noop("transpose first: the matrix is [out, in], the engine wants [in, out]")),
        (split(weight), tr_noop("neither transposed nor reordered")),
        (flat, too_early),
    ]


# Exercise 7.2: find
def _check_find(answer: Any) -> str | None:
    """Call the learner's function for a healthy model and for five kinds of trouble."""
    import torch

    rng = torch.Generator().manual_seed(0)
    # the lengths of the outputs differ, so that no single limit in numbers fits all
    scales = {"wte": 0.002, "h.0.ln_1": 1.0, "h.0.attn.c_attn": 30.0, "h.0.mlp.c_fc": 0.5, "ln_f": 4.0}
    right = {name: scale * torch.randn(1, 9, 16, generator=rng) for name, scale in scales.items()}
    *_, third, fourth, _ = right

    def served(change: "Callable[[Tensor], Tensor]", first: str) -> "dict[str, Tensor]":
        names = list(right)
        return {name: change(out) if names.index(name) >= names.index(first) else out for name, out in right.items()}

    def rounded(out: "Tensor") -> "Tensor":
        return out + 0.002 * out.std() * torch.randn(out.shape, generator=rng)

    def without_number(out: "Tensor") -> "Tensor":
        return torch.full_like(out, torch.nan)

    cases = (
        (right, None, tr_noop("equal outputs are right")),
        (
            served(rounded, "wte"),
            None,
            tr_noop(
                "every number is off a little, as from rounding: compare the length of the difference, norm(), with "
                "that of the output, not number by number"
            ),
        ),
        (served(_scaled, fourth), fourth, tr_noop("name the first wrong module: the later ones get wrong inputs")),
        (served(_scaled, "wte"), "wte", tr_noop("small outputs have small errors")),
        (
            served(_turned, third),
            third,
            tr_noop("the same numbers in another order are wrong, with the same sum and norm"),
        ),
        (
            served(without_number, third),
            third,
            tr_noop("nan: each comparison with it is False; ask what is within the limit"),
        ),
    )
    for outputs, wanted, advice in cases:
        if (found := answer(right, outputs)) != wanted:
            return tr("expected {wanted}, got {found}: {advice}.", wanted=wanted, found=found, advice=tr(advice))
    return None


def _turned(out: "Tensor") -> "Tensor":
    return out.flip(-1)


def _scaled(out: "Tensor") -> "Tensor":
    return -3 * out


# Exercise 7.3: pieces
def _bytes(*parts: str | bytes) -> list[bytes]:
    return [part.encode() if isinstance(part, str) else part for part in parts]


_CAT = [bytes([one]) for one in "猫".encode()]
PIECES_CASES: tuple[Case, ...] = (
    ((_bytes("昔", "々、"), "」"), ["昔", "々、"], "whole characters go out with their token"),
    ((_bytes("黒い", *_CAT, "が"), "」"), ["黒い", "", "", "猫", "が"],
     "a character goes out with its last byte; a token that completes none sends an empty text"),
    ((_bytes("あ", _CAT[0], _CAT[1] + _CAT[2] + "と".encode()), "」"), ["あ", "", "猫と"],
     "a token may hold the end of one character and another"),
    ((_bytes("は", "い」と", "言"), "」"), ["は", "い"],
     "the text ends in front of the stop string, and so do the pieces"),
    ((_bytes("雪。", "終", "わ", "り", "。"), "終わり"), ["雪。", "", "", ""],
     "the beginning of the stop string waits: it may still become the whole"),
    ((_bytes("終", "点", "まで"), "終わり"), ["", "終点", "まで"],
     "what waited and did not become the stop string goes out with the next token"),
    ((_bytes("雪", "の終"), "終わり"), ["雪", "の終"], "with the last token, what waited goes out"),
    ((_bytes("白い", *_CAT[:2]), "」"), ["白い", "", ""], "the bytes of a character that is never whole are not sent"),
)  # fmt: skip

# Exercise 7.5: slots of the static server, and texts that a judgement needs.
BATCH, FEWEST = 16, 20


def steps(lengths: list[int], slots: int, continuous: bool) -> int:
    """Return the steps until all texts are finished, all of which wait from the start."""
    if not continuous:
        return sum(max(lengths[at : at + slots]) for at in range(0, len(lengths), slots))
    ends = [0] * slots
    for length in lengths:
        # the slot that is free first
        heapreplace(ends, ends[0] + length)
    return max(ends)


# Exercise 7.5: the fewest slots
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


# Exercise 7.6: the number format
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


# Exercise 7.4: step
STEP_CASES: tuple[Case, ...] = (
    (([(0, 2), (1, 3), (2, 1)], [], 2), ([(2, 1)], [(0, 1), (1, 2)], []),
     "each job in a slot writes one token; the third has to wait"),
    (([(5, 4)], [(3, 1), (4, 2)], 3), ([], [(4, 1), (5, 3)], [3]),
     "a waiting job joins as soon as a slot is free, not when all are free"),
    (([(7, 3)], [(5, 2), (6, 2)], 2), ([(7, 3)], [(5, 1), (6, 1)], []),
     "no slot is free: the waiting job stays where it is"),
    (([(2, 1), (3, 5)], [(1, 2)], 2), ([(3, 5)], [(1, 1)], [2]),
     "a job that joins writes its first token in the same step"),
    (([(4, 2), (5, 2), (6, 2)], [], 2), ([(6, 2)], [(4, 1), (5, 1)], []), "the first that came are the first to join"),
    (([], [(1, 1), (2, 1)], 2), ([], [], [1, 2]),
     "a job without tokens left leaves the batch and is named in the third result"),
)  # fmt: skip

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
        from_notebook("07_fastertransformer_conversion", "convert_ours"),
        "A rank gets whole heads, because the last axis has them one after the other. The exporter does the same.",
    ),
    Exercise(
        "write find(right, served): the name of the first module whose output is wrong, None if none is",
        _check_find,
        (
            "Go through the modules in their order. By how much may an output differ that is only rounded?",
            "Compare (served[name] - right[name]).norm() with 0.01 * right[name].norm(), and return the first name "
            "whose difference is not within it.",
        ),
        from_notebook("07_fastertransformer_conversion", "find_ours"),
        "The inputs of the first wrong module are right, so the fault is its own: its weight, its bias or a setting.",
    ),
    Exercise(
        "write pieces(tokens, stop): the text that is sent after each token, up to the stop string",
        PIECES_CASES,
        (
            "Keep all bytes so far. What of their text is certain, and what of that was sent before?",
            'data.decode("utf8", "ignore") leaves out a character that is not whole. Hold back the longest end of the '
            "text with which `stop` begins, except with the last token.",
        ),
        from_notebook("07_fastertransformer_conversion", "pieces_ours"),
        "The course's server does the same, with any number of stop strings (course_lib/serving/text_stream.py).",
    ),
    Exercise(
        "write step(waiting, running, slots): one step of continuous batching",
        STEP_CASES,
        (
            "Three moves: fill the free slots from the front of `waiting`; take one from each `left`; sort out who "
            "has none left.",
            "free = slots - len(running); running = running + waiting[:free]; waiting = waiting[free:]; then two list "
            "comprehensions.",
        ),
        from_notebook("07_fastertransformer_conversion", "step_ours"),
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
        Code("(next(n for n in range(1, 17) if steps_of(step, n) <= steps_of(static, 16)), made)"),
        "The more equal the lengths, the less a free slot is worth: for texts of one length, 16 slots need 16.",
    ),
    Exercise(
        "choose the number format for serving: at most half of fp32's bytes, and the smallest change in the logits",
        _check_format,
        (
            "Measure all three formats; the sizes leave two of them.",
            "Which of the two has more bits for the digits of a number?",
        ),
        Code('("fp16", measure)'),
        "fp16 has 11 significant bits (10 of them stored) and reaches 65504; bf16 has 8 (7 stored) and the range of "
        "fp32. A model whose weights or activations exceed 65504 needs bf16; the export refuses such weights in fp16. "
        "The original backend for GPT-NeoX would run bf16 weights in fp32.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

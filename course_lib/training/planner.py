"""Compares and advises: a run's memory at every ZeRO stage and recompute choice, which cards hold it, what to change if they do not.

The figures are memory.py's; every change that is advised has been planned. It serves every kind of run. GB means 1e9
bytes, of cards too, which mostly have a little more.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from course_lib.errors import UsageError
from course_lib.training.memory import GB, Plan, plan

__all__ = ["Fit", "Plan", "grid", "plan", "report", "smaller", "table", "what_fits"]

CARDS = (16, 24, 40, 80, 141)  # GB: V100 and T4, A10G and RTX 4090, A100, A100 and H100, H200
Choices = Iterator[tuple[str, Plan]]


@dataclass(frozen=True)
class Fit:
    """Whether a card holds the run; if not, changes, each on top of those before, with the peak they lead to [bytes]."""

    card: int  # GB
    fits: bool
    changes: list[tuple[str, int]]

    def __str__(self) -> str:
        if self.fits:
            return f"{self.card:>4} GB: fits"
        steps = ", then ".join(f"{change} → {total / GB:.1f} GB" for change, total in self.changes)
        helped = self.changes and self.changes[-1][1] <= self.card * GB
        return (
            f"{self.card:>4} GB: does not fit; {steps}"
            if helped
            else f"{self.card:>4} GB: does not fit, nor with {steps}"
        )


def recompute_choices(settings: Any) -> tuple[str, ...]:
    """What model.recompute of these settings may be, from nothing to most."""
    return get_args(type(settings.model).__dataclass_fields__["recompute"].type)


def grid(settings: Any, ranks: int | None = None) -> list[Plan]:
    """The run at every stage and recompute choice; offload stays where the stage allows it."""
    again = recompute_choices(settings)
    choices = [{"zero.stage": stage, "model.recompute": choice} for stage in range(4) for choice in again]
    return [plan(_with(settings, choice), ranks) for choice in choices]


def what_fits(settings: Any, ranks: int | None = None) -> list[Fit]:
    """A verdict for each of CARDS."""
    total = plan(settings, ranks).total
    return [Fit(c, total <= c * GB, [] if total <= c * GB else smaller(settings, ranks, c * GB)) for c in CARDS]


def smaller(settings: Any, ranks: int | None = None, room: int = 0) -> list[tuple[str, int]]:
    """Changes that save memory, cheapest first, each on top of those before, with the peak they lead to [bytes].

    Of each kind the mildest that gets the run into `room` bytes, and the list ends there; else the one that saves most.
    The samples per step stay. Order: recompute, micro batch, ZeRO stage, more GPUs, optimizer and parameters to the
    host.
    """
    current = plan(settings, ranks)
    found: list[tuple[str, int]] = []
    gpus = partial(_ranks, most=8 * current.ranks)
    while True:  # one change may make room for another to help
        known = len(found)
        for choices in (_recompute, _micro, _stage, gpus, _offload_optimizer, _offload_param):
            tried = [(name, each) for name, each in choices(current) if each.total < 0.99 * current.total]
            fitting = [(name, each) for name, each in tried if each.total <= room]
            if tried:
                name, current = fitting[0] if fitting else min(tried, key=lambda pair: pair[1].total)
                found.append((name, current.total))
            if fitting:
                return found
        if len(found) == known:
            return found


def report(settings: Any, ranks: int | None = None) -> dict[str, Any]:
    """What `table` says, as JSON values; memory in bytes."""
    chosen, model = plan(settings, ranks), settings.sizes()
    return {
        "parameters": model.parameters,
        "frozen": sum(model.frozen),
        "flops_per_token": model.flops_per_token,
        "ranks": chosen.ranks,
        "chosen": _row(chosen),
        "grid": [_row(each) for each in grid(settings, ranks)],
        "cards": [
            {
                "gb": fit.card,
                "fits": fit.fits,
                "changes": [{"set": what, "total": total} for what, total in fit.changes],
            }
            for fit in what_fits(settings, ranks)
        ],
    }


def table(settings: Any, ranks: int | None = None) -> str:
    """A line for each stage and recompute choice, then the cards."""
    chosen, model, frozen = plan(settings, ranks), settings.sizes(), ""
    if model.frozen:
        frozen = f" ({model.parameters - sum(model.frozen):,} trained, {sum(model.frozen):,} frozen)"
    lines = [
        f"{model.parameters:,} parameters{frozen}, {chosen.ranks} GPU{'s' * (chosen.ranks > 1)}, {settings.precision.dtype}, "
        f"micro batch {settings.batch.micro_size} × {model.length} tokens, {settings.model.attention} attention",
        "GB (1e9 bytes) per GPU; host: in host memory, for each GPU; > the run as it is set",
        "  ZeRO recompute" + "".join(f"{name:>12}" for name in (*chosen.parts, "total", "host")),
    ]
    for each in grid(settings, ranks):
        columns = (*each.parts.values(), each.total, each.host)
        mark = ">" if each.settings == settings else " "
        lines.append(
            f"{mark} {each.settings.zero.stage:<4} {each.settings.model.recompute:9}"
            + "".join(f"{size / GB:12.2f}" for size in columns)
        )
    return "\n".join([*lines, *map(str, what_fits(settings, ranks))])


def _row(each: Plan) -> dict[str, Any]:
    zero = each.settings.zero
    return {
        "stage": zero.stage, "recompute": each.settings.model.recompute, "offload_optimizer": zero.offload_optimizer,
        "offload_param": zero.offload_param, "parts": each.parts, "total": each.total, "host": each.host,
    }  # fmt: skip


def _with(settings: Any, changes: dict[str, Any]) -> Any:
    """The settings with dotted keys changed; offload that the stage does not allow goes."""
    for key, value in changes.items():
        section, name = key.split(".")
        values = {name: value}
        if key == "zero.stage":
            values |= {"offload_param": settings.zero.offload_param and value == 3}
            values |= {"offload_optimizer": settings.zero.offload_optimizer and value > 0}
        settings = replace(settings, **{section: replace(getattr(settings, section), **values)})
    return settings


def _choice(current: Plan, changes: dict[str, Any], ranks: int | None = None) -> tuple[str, Plan]:
    """What to set, as `--set` takes it, and the plan then."""
    said = " ".join(f"{key}={str(value).lower()}" for key, value in changes.items())
    return f"{said} on {ranks} GPUs" if ranks else said, plan(_with(current.settings, changes), ranks or current.ranks)


def _recompute(current: Plan) -> Choices:
    for choice in recompute_choices(current.settings)[1:]:
        yield _choice(current, {"model.recompute": choice})


def _micro(current: Plan) -> Choices:
    batch = current.settings.batch
    local = {} if batch.local_size or batch.global_size else {"batch.local_size": batch.micro_size}
    for size in range(batch.micro_size - 1, 0, -1):
        if batch.micro_size % size == 0:
            yield _choice(current, {"batch.micro_size": size} | local)


def _stage(current: Plan) -> Choices:
    for stage in range(current.settings.zero.stage + 1, 4):
        yield _choice(current, {"zero.stage": stage})


def _ranks(current: Plan, most: int) -> Choices:
    for ranks in (current.ranks * times for times in (2, 4, 8) if current.ranks * times <= most):
        try:
            current.settings.batch.resolve(ranks)
        except UsageError:  # the batch does not go into so many
            continue
        yield _choice(current, {"zero.stage": max(current.settings.zero.stage, 2)}, ranks)


def _offload_optimizer(current: Plan) -> Choices:
    if not current.settings.zero.offload_optimizer:
        stage = {} if current.settings.zero.stage else {"zero.stage": 2}
        yield _choice(current, stage | {"zero.offload_optimizer": True})


def _offload_param(current: Plan) -> Choices:
    if current.settings.zero.stage == 3 and not current.settings.zero.offload_param:
        yield _choice(current, {"zero.offload_param": True})

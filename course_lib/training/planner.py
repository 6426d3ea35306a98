"""The memory planner: compares ZeRO stages and recomputation choices, and suggests changes that reduce memory use.

GB means 1e9 bytes, also for GPUs, most of which have slightly more memory.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from course_lib.errors import UsageError
from course_lib.language.columns import padded
from course_lib.language.words import tr, tr_noop
from course_lib.training.memory import GB, Plan, plan
from course_lib.training.settings import BatchConfig

__all__ = ["Fit", "Plan", "grid", "plan", "report", "smaller", "table", "what_fits"]

# GPU memory sizes [GB]: V100 and T4; A10G and RTX 4090; A100; A100 and H100; H200
CARDS = (16, 24, 40, 80, 141)
# kinds of changes that reduce memory use, in the order in which they are tried
KINDS = ("recompute", "micro-batch", "stage", "ranks", "optimizer offload", "parameter offload")


@dataclass(frozen=True)
class Fit:
    """Whether a run fits on a GPU with a given memory size, and what to change if it does not (see `smaller`)."""

    card: int  # GB
    fits: bool
    changes: list[tuple[str, int]]

    def __str__(self) -> str:
        if self.fits:
            return tr("{card:>4} GB: fits", card=self.card)
        steps = tr(", then ").join(f"{change} → {total / GB:.1f} GB" for change, total in self.changes)
        if self.changes and self.changes[-1][1] <= self.card * GB:
            return tr("{card:>4} GB: does not fit; {steps}", card=self.card, steps=steps)
        return tr("{card:>4} GB: does not fit, even with {steps}", card=self.card, steps=steps)


def recompute_choices(settings: Any) -> tuple[str, ...]:
    """Return the allowed values for model.recompute, from no recomputation to the most."""
    return get_args(type(settings.model).__dataclass_fields__["recompute"].type)


def grid(settings: Any, ranks: int | None = None) -> list[Plan]:
    """Plan the run for every recompute choice and ZeRO stage, or only its stage, if ZeRO has nothing to do."""
    rank_count = ranks or settings.launch.ranks or 1
    has_choice = _with(settings, {"zero.stage": 3}).uses_deepspeed(rank_count)
    stages = range(4) if has_choice else (settings.zero.stage,)
    recompute = recompute_choices(settings)
    choices = [{"zero.stage": stage, "model.recompute": choice} for stage in stages for choice in recompute]
    return [plan(_with(settings, choice), ranks) for choice in choices]


def what_fits(settings: Any, ranks: int | None = None) -> list[Fit]:
    """Return, for each GPU memory size in CARDS, whether the run fits and what to change if it does not."""
    total = plan(settings, ranks).total
    return [Fit(c, total <= c * GB, [] if total <= c * GB else smaller(settings, ranks, c * GB)) for c in CARDS]


def smaller(settings: Any, ranks: int | None = None, limit: int = 0) -> list[tuple[str, int]]:
    """Return changes that reduce memory use, as pairs (settings to change, resulting peak memory [bytes]).

    Each change is made in addition to the previous ones. The list ends with the mildest change of a kind that makes the
    run fit into `limit` bytes; before it, it has those that save the most. Only GPUs add samples to a step.
    """
    current = plan(settings, ranks)
    changes: list[tuple[str, int]] = []
    most = 8 * current.ranks
    # Try all kinds again, because one change may enable another.
    while True:
        before = len(changes)
        for kind in KINDS:
            tried = []
            for values, rank_count in _changes(kind, current, most):
                # in the format that `--set` accepts
                change = " ".join(f"{key}={str(value).lower()}" for key, value in values.items())
                if rank_count != current.ranks:
                    change = tr("{change} on {ranks} GPUs", change=change, ranks=rank_count)
                tried.append((change, plan(_with(current.settings, values), rank_count)))
            tried = [(change, each) for change, each in tried if each.total < 0.99 * current.total]
            fitting = [(change, each) for change, each in tried if each.total <= limit]
            if tried:
                change, current = fitting[0] if fitting else min(tried, key=lambda pair: pair[1].total)
                changes.append((change, current.total))
            if fitting:
                return changes
        if len(changes) == before:
            return changes


def advice(settings: Any, ranks: int) -> str:
    """Return the memory that a run needs and the settings that need less, as text for an error message."""
    options = "; ".join(f"{change} → {total / GB:.1f} GB" for change, total in smaller(settings, ranks))
    total = plan(settings, ranks).total / GB
    return f"the planner expects {total:.1f} GB per rank; to save memory: {options or 'a smaller model'}"


def report(settings: Any, ranks: int | None = None) -> dict[str, Any]:
    """Return the content of `table` as JSON values, with memory in bytes."""
    model = settings.sizes()
    return {
        "parameters": model.parameters,
        "frozen": sum(model.frozen),
        "flops_per_token": model.flops_per_token,
        "grid": [
            {"stage": each.settings.zero.stage, "recompute": each.settings.model.recompute}
            | {"parts": each.parts, "total": each.total, "host": each.host}
            for each in grid(settings, ranks)
        ],
        "cards": [asdict(fit) for fit in what_fits(settings, ranks)],
    }


def table(settings: Any, ranks: int | None = None) -> str:
    """Format the plans as a text table: one line per ZeRO stage and recompute choice, then one per GPU memory size."""
    chosen, model = plan(settings, ranks), settings.sizes()
    parameter_count, frozen = model.parameters, sum(model.frozen)
    parameters = tr("{number:,} parameters", number=parameter_count)
    if frozen:
        sizes = {"number": parameter_count, "trained": parameter_count - frozen, "frozen": frozen}
        parameters = tr("{number:,} parameters ({trained:,} trained, {frozen:,} frozen)", **sizes)
    run = {
        "parameters": parameters,
        "gpus": tr("{number} GPUs", number=chosen.ranks) if chosen.ranks > 1 else tr("1 GPU"),
        "dtype": settings.precision.dtype,
        "micro": settings.batch.micro_size,
        "length": model.length,
        # GPTSAN and prefixes have no other kernel
        "attention": getattr(settings.model, "attention", "sdpa"),
    }
    names = (*chosen.parts, tr_noop("total"), tr_noop("host"))
    lines = [
        tr("{parameters}, {gpus}, {dtype}, micro batch {micro} × {length} tokens, {attention} attention", **run),
        tr(
            "GB (1e9 bytes) per GPU; gradients: those kept between micro-batches; host: host memory per GPU; "
            ">: the run with its own settings"
        ),
        "  ZeRO recompute" + "".join(padded(tr(name), ">12") for name in names),
    ]
    for each in grid(settings, ranks):
        marker = ">" if each.settings == settings else " "
        columns = "".join(f"{size / GB:12.2f}" for size in (*each.parts.values(), each.total, each.host))
        lines.append(f"{marker} {each.settings.zero.stage:<4} {each.settings.model.recompute:9}{columns}")
    return "\n".join([*lines, *map(str, what_fits(settings, ranks))])


def _with(settings: Any, changes: dict[str, Any]) -> Any:
    """Return the settings with some dotted keys changed; offload that a ZeRO stage does not support is turned off."""
    for key, value in changes.items():
        section, name = key.split(".")
        values = {name: value}
        if key == "zero.stage":
            values |= {"offload_param": settings.zero.offload_param and value == 3}
            values |= {"offload_optimizer": settings.zero.offload_optimizer and value > 0}
        settings = replace(settings, **{section: replace(getattr(settings, section), **values)})
    return settings


def _changes(kind: str, current: Plan, most: int) -> list[tuple[dict[str, Any], int]]:
    """Return the changes of one kind, the mildest first, with their number of ranks, of which there are at `most`."""
    settings, ranks = current.settings, current.ranks
    batch, zero = settings.batch, settings.zero
    if kind == "recompute":
        return [({"model.recompute": choice}, ranks) for choice in recompute_choices(settings)[1:]]
    if kind == "micro-batch":
        local = {} if batch.local_size or batch.global_size else {"batch.local_size": batch.micro_size}
        sizes = [size for size in range(batch.micro_size - 1, 0, -1) if batch.micro_size % size == 0]
        return [({"batch.micro_size": size} | local, ranks) for size in sizes]
    if kind == "stage":
        return [({"zero.stage": stage}, ranks) for stage in range(zero.stage + 1, 4)]
    if kind == "ranks":
        more = [ranks * times for times in (2, 4, 8) if ranks * times <= most]
        allowed = [each for each in more if _divides(batch, each) and not settings.problem_with_ranks(each)]
        return [({"zero.stage": max(zero.stage, 2)}, rank_count) for rank_count in allowed]
    # Muon trains without DeepSpeed.
    if settings.optimizer.name == "muon":
        return []
    if kind == "optimizer offload" and not zero.offload_optimizer:
        return [(({} if zero.stage else {"zero.stage": 2}) | {"zero.offload_optimizer": True}, ranks)]
    if kind == "parameter offload" and not zero.offload_param:
        return [(({} if zero.stage == 3 else {"zero.stage": 3}) | {"zero.offload_param": True}, ranks)]
    return []


def _divides(batch: BatchConfig, ranks: int) -> bool:
    try:
        batch.resolve(ranks)
    except UsageError:
        return False
    return True

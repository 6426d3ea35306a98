"""Comparison of training methods over several seeds: same data, same steps, mean and spread."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.language.words import tr
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.measure import exact_matches
from course_lib.prefix.model import PrefixModel
from course_lib.prefix.single_process_trainer import Build, Case, evaluate, sweep
from course_lib.prefix.task import PrefixTask

SEEDS = (1, 2, 3)
# Overrides of the settings for each case, and the functions that build the models of some of them, as for `sweep`.
Cases = Mapping[str, Sequence[str]]
Builders = Mapping[str, Build]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of a measurement over several runs; one run has the deviation 0."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        """Return the spread of some measurements; None, where there were no held-out samples, counts as NaN."""
        known = [_known(value) for value in values]
        return cls(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else 0.0)


@dataclass(frozen=True)
class Runs:
    """The runs of one case, which differ by their seed."""

    runs: tuple[Case, ...]

    @property
    def held_out(self) -> Spread:
        """Held-out loss [nats per token]."""
        return Spread.of([run.held_out for run in self.runs])

    @property
    def matches(self) -> Spread:
        """Share of held-out targets that greedy decoding returns exactly."""
        return Spread.of([run.matches for run in self.runs])

    def summary(self) -> str:
        """Return held-out loss and exact matches as one line: mean ± sample standard deviation."""
        loss, matches = self.held_out, self.matches
        return tr(
            "held-out loss {loss:.3f} nats ± {loss_spread:.3f} nats, {exact:.0%} ± {exact_spread:.0%} exact",
            loss=loss.mean,
            loss_spread=loss.deviation,
            exact=matches.mean,
            exact_spread=matches.deviation,
        )

    def costs(self) -> str:
        """Return trained parameters, memory and time (mean ± sample standard deviation) as one line."""
        run, seconds = self.runs[0], Spread.of([run.seconds for run in self.runs])
        return tr(
            "trained {trained:>9,}, states {states:5.2f} MB, kept {kept:4.1f} MB, {seconds}",
            trained=run.trained,
            states=run.states / 1e6,
            kept=run.activations / 1e6,
            seconds=f"{seconds.mean:.1f} s ± {seconds.deviation:.1f} s",
        )


def over_seeds(
    settings: PrefixConfig, cases: Cases, builders: Builders | None = None, seeds: Sequence[int] = SEEDS
) -> dict[str, Runs]:
    """Train each case once for each seed, and return its runs by case name.

    A seed decides the initial weights and the order of the samples. The held-out samples are always the same.
    """
    found = _grid(settings, cases, "engine.seed", dict.fromkeys(cases, seeds), builders)
    return {name: Runs(tuple(runs.values())) for name, runs in found.items()}


def over_rates(
    settings: PrefixConfig, cases: Cases, rates: Mapping[str, Sequence[float]], builders: Builders | None = None
) -> dict[str, dict[float, Case]]:
    """Train each case once at each of its learning rates, all with the first of SEEDS.

    Returns the measurements by case name and rate.
    """
    seeded = {name: [*overrides, f"engine.seed={SEEDS[0]}"] for name, overrides in cases.items()}
    return _grid(settings, seeded, "optimizer.lr.max", rates, builders)


def at_best_rate(
    settings: PrefixConfig,
    cases: Cases,
    tried: Mapping[str, Mapping[float, Case]],
    builders: Builders | None = None,
    seeds: Sequence[int] = SEEDS,
) -> dict[str, Runs]:
    """Train each case at the rate with its lowest held-out loss, and return its runs by case name.

    `tried` is the result of `over_rates`, whose runs, with the seed `seeds[0]`, are not repeated.
    """
    best = {}
    for name, runs in tried.items():
        losses = {rate: _known(run.held_out) for rate, run in runs.items()}
        best[name] = min(losses, key=losses.__getitem__)
    tuned = {name: [*cases[name], f"optimizer.lr.max={rate}"] for name, rate in best.items()}
    more = over_seeds(settings, tuned, builders, seeds[1:])
    return {name: Runs((tried[name][rate], *more[name].runs)) for name, rate in best.items()}


def _grid(
    settings: PrefixConfig,
    cases: Cases,
    key: str,
    values: Mapping[str, Sequence[float]],
    builders: Builders | None,
) -> dict[str, dict[float, Case]]:
    """Train each case once for each of its values of one more setting; return {case name: {value: measurements}}."""
    named = {(name, value): f"{name}, {key}={value}" for name in cases for value in values[name]}
    found = sweep(
        settings,
        {label: [*cases[name], f"{key}={value}"] for (name, value), label in named.items()},
        {label: builders[name] for (name, _), label in named.items() if builders and name in builders},
    )
    return {name: {value: found[named[name, value]] for value in values[name]} for name in cases}


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def untrained(settings: PrefixConfig) -> tuple[float, float]:
    """Return the held-out loss [nats per token] and the share of exact matches of the base without any training."""
    from course_lib.checkpoints.compute import device
    from course_lib.checkpoints.torch_dtypes import TORCH
    from course_lib.models import frozen_base

    assert settings.model.base
    _, held_out = PrefixTask(settings).rows()
    base = frozen_base.load(settings.model.base, TORCH[settings.precision.dtype])
    model = PrefixModel(base.to(device(settings.launch.device)), None)
    loss = evaluate(model, held_out, settings.batch.resolve(1).micro)
    return _known(loss), _known(exact_matches(model, held_out))

"""Comparison of training methods over several seeds: same data, same steps, mean and spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from course_lib.checkpoints.compute import device, trainings_at_once
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.language.words import mark, tr
from course_lib.models import frozen_base
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.measure import exact_matches
from course_lib.prefix.model import PrefixModel, build
from course_lib.prefix.single_process_trainer import Build, Case, evaluate, train
from course_lib.prefix.task import PrefixTask
from course_lib.settings import config

SEEDS = (1, 2, 3)
# Overrides of the settings for each case, such as {"P = 5": ["model.length=5"], "full": ["model.method=full"]}.
Cases = Mapping[str, Sequence[str]]
# Functions that build the models of cases that train something else than model.method says; they must be picklable.
Builders = Mapping[str, Build]


@dataclass(frozen=True)
class Runs:
    """The runs of one case, which differ by their seed."""

    runs: tuple[Case, ...]

    @property
    def held_out(self) -> tuple[float, float]:
        """Held-out loss [nats per token], as mean and sample standard deviation."""
        return _spread([run.held_out for run in self.runs])

    @property
    def matches(self) -> tuple[float, float]:
        """Share of held-out targets that greedy decoding returns exactly, as mean and sample standard deviation."""
        return _spread([run.matches for run in self.runs])

    def summary(self) -> str:
        """Return held-out loss and exact matches as one line: mean ± sample standard deviation."""
        line = mark("held-out loss {loss[0]:.3f} nats ± {loss[1]:.3f} nats, {exact[0]:.0%} ± {exact[1]:.0%} exact")
        return tr(line, loss=self.held_out, exact=self.matches)

    def costs(self) -> str:
        """Return trained parameters, memory [MB] and time (mean ± sample standard deviation) as one line."""
        run, time = self.runs[0], _spread([run.seconds for run in self.runs])
        line = mark(
            "trained {run.trained:>9,}, states {states:5.2f} MB, kept {kept:4.1f} MB, {time[0]:.1f} s ± {time[1]:.1f} s"
        )
        return tr(line, run=run, states=run.states / 1e6, kept=run.activations / 1e6, time=time)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def over_seeds(
    settings: PrefixConfig, cases: Cases, builders: Builders | None = None, seeds: Sequence[int] = SEEDS
) -> dict[str, Runs]:
    """Train each case once for each seed, of the initial weights and the sample order; return its runs by case name."""
    trained = _grid(settings, cases, "engine.seed", dict.fromkeys(cases, seeds), builders)
    return {name: Runs(tuple(runs.values())) for name, runs in trained.items()}


def over_rates(
    settings: PrefixConfig, cases: Cases, rates: Mapping[str, Sequence[float]], builders: Builders | None = None
) -> dict[str, dict[float, Case]]:
    """Train each case at each of its learning rates with the first of SEEDS; return the cases by name and rate."""
    seeded = {name: [*overrides, f"engine.seed={SEEDS[0]}"] for name, overrides in cases.items()}
    return _grid(settings, seeded, "optimizer.lr.max", rates, builders)


def at_best_rate(
    settings: PrefixConfig,
    cases: Cases,
    tried: Mapping[str, Mapping[float, Case]],
    builders: Builders | None = None,
    seeds: Sequence[int] = SEEDS,
) -> dict[str, Runs]:
    """Train each case with the other seeds at its best rate in `tried`, what over_rates returned; return its runs."""
    best = {name: min(runs, key=lambda rate: runs[rate].held_out) for name, runs in tried.items()}
    tuned = {name: [*cases[name], f"optimizer.lr.max={rate}"] for name, rate in best.items()}
    more = over_seeds(settings, tuned, builders, seeds[1:])
    return {name: Runs((tried[name][rate], *more[name].runs)) for name, rate in best.items()}


def _grid(
    settings: PrefixConfig, cases: Cases, key: str, values: Mapping[str, Sequence[float]], builders: Builders | None
) -> dict[str, dict[float, Case]]:
    """Train each case once for each of its values of one more setting; return {case name: {value: measurements}}."""
    pairs = [(name, value) for name in cases for value in values[name]]
    given = config.to_dict(settings)
    runs = [
        (config.build(PrefixConfig, given, [*cases[name], f"{key}={value}"]), (builders or {}).get(name, build))
        for name, value in pairs
    ]
    # On the CPU, other cores train other cases at the same time. Only Case.seconds depends on it.
    workers = trainings_at_once(settings.sizes().parameters, settings.launch.device)
    results: dict[str, dict[float, Case]] = {name: {} for name in cases}
    with progress(len(runs), "run", "training") as bar:
        for (name, value), case in zip(pairs, ordered_map(_run, runs, min(workers, len(runs))), strict=True):
            results[name][value] = case
            bar.update()
    return results


def _run(run: tuple[PrefixConfig, Build]) -> Case:
    return replace(train(*run), model=None)


def untrained(settings: PrefixConfig) -> tuple[float, float]:
    """Return the held-out loss [nats per token] and the share of exact matches of the base without any training."""
    assert settings.model.base
    _, held_out = PrefixTask(settings).rows()
    base = frozen_base.load(settings.model.base, TORCH[settings.precision.dtype])
    model = PrefixModel(base.to(device(settings.launch.device)), None)
    return evaluate(model, held_out, settings.batch.resolve(1).micro), exact_matches(model, held_out)

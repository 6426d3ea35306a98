"""What the scripts `seeds_*` share: measures for several seeds, with their mean and standard deviation."""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from course_lib.training.loop import Trained, silent, train
from course_lib.training.run import Run

Measure = Callable[[int, Path], dict[str, float]]


def main(about: str | None, *measures: Measure) -> None:
    """Take each measure for each seed, in a folder that is removed afterwards, and print the figures."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1024, 1, 2])
    parser.add_argument("--part", choices=[measure.__name__ for measure in measures])
    chosen = parser.parse_args()
    for measure in measures:
        if chosen.part not in (None, measure.__name__):
            continue
        runs = []
        for seed in chosen.seeds:
            with tempfile.TemporaryDirectory() as folder:
                runs.append(measure(seed, Path(folder)))
            print(f"{measure.__name__}, seed {seed}:", {name: round(value, 3) for name, value in runs[-1].items()})
        for name in runs[0]:
            values = [run[name] for run in runs]
            print(f"{name}: {mean(values):.3f} ± {stdev(values) if len(values) > 1 else 0:.3f}")


def trained(kind: Callable[[Any], Run], settings: Any, seed: int, folder: Path) -> Trained:
    """Train with a seed in a folder; the last step is saved."""
    steps = settings.engine.max_steps or settings.engine.save_steps
    engine = replace(settings.engine, seed=seed, output_dir=folder, save_steps=steps)
    return train(kind(replace(settings, engine=engine)), on_message=silent)


def held_out_loss(run: Trained) -> float:
    """Return the last held-out loss of a run."""
    return [entry["loss"] for entry in run.log if entry["kind"] == "eval"][-1]

"""Trains the small model of notebook 4a+ with parts of today's models, each at four rates and with three seeds.

`python -m tests.bench.llama_parts` writes course_lib/pretrain/llama_parts.csv, which 4a+.4 prints; about five minutes on
a core. Each run has two losses, on two parts of the held-out text: one to choose a rate by, one to judge the kind by. The
classes are the notebook's own: its cells run up to Muon, without those that only train or show.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import torch
from course_lib import pretrain
from course_lib.paths import NOTEBOOKS

STEPS, BATCH, SEEDS = 200, 4, (0, 1, 2)
RATES = {"AdamW": (3e-3, 6e-3, 1.2e-2, 2.4e-2), "Muon": (1.2e-2, 2.4e-2, 4.8e-2, 9.6e-2)}
NOTEBOOK, LAST = "04_gpt2_to_llama", "muon"
# The set-up, the overview, and cells that train or show.
LEFT_OUT = {"l04", "l05", "turns", "kv", "parts", "partst", "partsf", "sing"}


def definitions() -> dict[str, Any]:
    """Run the notebook's cells up to Muon and return their names."""
    names: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOKS / f"{NOTEBOOK}.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and cell.id not in LEFT_OUT:
            exec(cell.source, names)
        if cell.id == LAST:
            break
    return names


def rows(names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Train, and yield a row for each run."""
    for kind in names["kinds"]:
        for optimizer in RATES if kind in ("GPT-2", "Llama") else ("AdamW",):
            for rate in RATES[optimizer]:
                for seed in SEEDS:
                    model = names["of_kind"](kind, seed)
                    batches = names["draw"](names["train"], STEPS, seed, BATCH)
                    for _ in names["learn"](model, names[optimizer](model.parameters()), batches, rate):
                        pass
                    both = (names["loss_on"](names[tests], model) for tests in ("to_choose", "to_judge"))
                    losses = dict(zip(("choose", "judge"), (round(loss, 3) for loss in both), strict=True))
                    print(kind, optimizer, rate, seed, losses, flush=True)
                    yield {"kind": kind, "optimizer": optimizer, "rate": rate, "seed": seed, **losses}


def main() -> None:
    torch.set_num_threads(1)
    found = list(rows(definitions()))
    with (Path(pretrain.__file__).parent / "llama_parts.csv").open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    main()

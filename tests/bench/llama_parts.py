"""Trains the small model of notebook 4a+ with parts of today's models.

`python -m tests.bench.llama_parts` writes course_lib/pretrain/llama_parts.csv, which 4a+.4 prints; about six minutes on
a core. Each kind tries four rates with three seeds; the rate with the lowest losses on one part of the held-out text is
judged with three other seeds on another part. The classes are the notebook's own: its cells run up to Muon, without
those that only train or show.
"""

from collections.abc import Iterator
from typing import Any

import nbformat
import torch
from course_lib.notebooks import measured
from course_lib.paths import NOTEBOOKS

STEPS, BATCH = 200, 4
CHOOSING, JUDGING = (0, 1, 2), (3, 4, 5)  # seeds
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

    def row(kind: str, optimizer: str, rate: float, seed: int, part: str) -> dict[str, Any]:
        model = names["of_kind"](kind, seed)
        batches = names["draw"](names["train"], STEPS, seed, BATCH)
        for _ in names["learn"](model, names[optimizer](model.parameters()), batches, rate):
            pass
        loss = round(names["loss_on"](names[f"to_{part}"], model), 3)
        print(kind, optimizer, rate, seed, part, loss, flush=True)
        return {"kind": kind, "optimizer": optimizer, "rate": rate, "seed": seed, "part": part, "loss": loss}

    for kind in names["kinds"]:
        for optimizer in RATES if kind in ("GPT-2", "Llama") else ("AdamW",):
            tried = {}
            for rate in RATES[optimizer]:
                tried[rate] = [row(kind, optimizer, rate, seed, "choose") for seed in CHOOSING]
                yield from tried[rate]
            best = min(tried, key=lambda rate: sum(run["loss"] for run in tried[rate]))
            for seed in JUDGING:
                yield row(kind, optimizer, best, seed, "judge")


def main() -> None:
    torch.set_num_threads(1)
    measured.write("pretrain/llama_parts", list(rows(definitions())))


if __name__ == "__main__":
    main()

"""Trains the small model of notebook 4a with parts of today's models, each at four rates and with three seeds.

`python -m tests.bench.llama_parts` writes course_lib/pretrain/llama_parts.csv, which 4a.11 prints; about 6 minutes on a
core. The classes are the notebook's own: its cells run up to 4a.11, without those that only train or write.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import torch
from course_lib import pretrain
from course_lib.paths import REPOSITORY

STEPS, BATCH, SEEDS = 200, 4, (0, 1, 2)
RATES = {"AdamW": (3e-3, 6e-3, 1.2e-2, 2.4e-2), "Muon": (1.2e-2, 2.4e-2, 4.8e-2, 9.6e-2)}
LAST, NEEDED = "muon", ("c08", "c54")
SLOW = {"c04", "c61", "p063", "w072", "w074", "c68", "c71", "p089", "p092", "amap", "p096", "p105", "p109", "facts"}


def definitions() -> dict[str, Any]:
    """Run the notebook's cells up to the parts of 4a.11 and return their names."""
    names: dict[str, Any] = {}
    for cell in nbformat.read(REPOSITORY / "notebooks" / "04_gpt2_by_hand.ipynb", as_version=4).cells:
        ignored = "nbval-ignore-output" in cell.metadata.get("tags", []) and cell.id not in NEEDED
        if cell.cell_type == "code" and not ignored and cell.id not in SLOW:
            exec(cell.source, names)
        if cell.id == LAST:
            break
    return names


def rows(names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Train, and yield a row for each run."""
    tests, both = names["tests"], {"AdamW": names["AdamW"], "Muon": names["Muon"]}
    for kind in names["kinds"]:
        for optimizer in both if kind in ("GPT-2", "Llama") else ("AdamW",):
            names["AdamW"] = both[optimizer]  # `learn` looks the name up
            for rate in RATES[optimizer]:
                for seed in SEEDS:
                    model = names["of_kind"](kind, seed)
                    for _ in names["learn"](model, names["draw"](names["train"], STEPS, seed, BATCH), rate):
                        pass
                    with torch.no_grad():
                        loss = names["cross_entropy"](model(tests[:, :-1]), tests[:, 1:]).item()
                    print(kind, optimizer, rate, seed, f"{loss:.3f}", flush=True)
                    yield {"kind": kind, "optimizer": optimizer, "rate": rate, "seed": seed, "loss": round(loss, 3)}


def main() -> None:
    torch.set_num_threads(1)
    found = list(rows(definitions()))
    with (Path(pretrain.__file__).parent / "llama_parts.csv").open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    main()

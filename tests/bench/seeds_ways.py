"""Notebook 06's comparison of a prefix, LoRA and all weights (6.8) on tiny GPT-2 bases of several seeds, for 200 and 400 steps.

    python -m tests.bench.seeds_ways [--seeds 1 2 3]

Runs the notebook's own cells on each base: rates, choice and judging are its own. About seven minutes a seed on two cores.
"""

import dataclasses
from functools import partial
from pathlib import Path
from statistics import mean

import nbformat
import torch
from course_lib import paths
from course_lib.models import frozen_base
from course_lib.prefix import data, products
from course_lib.prefix.samples import batches
from course_lib.prefix.warm_start import cache_values
from course_lib.pretrain import products as pretrain
from course_lib.pretrain import text_codec
from course_lib.pretrain.export import export
from course_lib.pretrain.gpt2 import Gpt2
from torch import nn

from tests.bench import seeds
from tests.exercises.answers.folded import Folded

NOTEBOOK = "06_prefix_tuning"
LOOP_TO_JUDGING = ("tuning-041", "tuning-048e", "tuning-069b", "tuning-071", "tuning-073", "tuning-074", "tuning-076")


def ways(seed: int, folder: Path) -> dict[str, float]:
    """The least and the most exact answers [share] of the notebook's runs, for each way and number of steps."""
    products.PAIRS.path()
    run = seeds.trained(Gpt2, pretrain.run_settings(), seed, folder / "run")
    export(run.folder, base := folder / "model")
    model, codec, plain = (
        frozen_base.load(base, torch.float32),
        text_codec.load(base),
        products.task_settings()["plain"],
    )
    names = {
        "torch": torch, "nn": nn, "dataclasses": dataclasses, "partial": partial, "batches": batches, "mean": mean,
        "cache_values": cache_values, "data": data, "products": products, "model": model, "config": model.config,
        "width": model.config.hidden_size, "codec": codec, "end": codec.tokenizer.eos_token_id, "device": "cpu",
        "chosen": plain, "size": plain.batch.resolve(1).total,
    }  # fmt: skip
    cells = nbformat.read(paths.NOTEBOOKS / f"{NOTEBOOK}.ipynb", as_version=4).cells
    found: dict[str, float] = {}
    for steps in (200, 400):
        names |= Folded(NOTEBOOK, **names).names
        for cell in cells:
            if cell.id in LOOP_TO_JUDGING:
                exec(cell.source.replace("products.quick().steps", str(steps)), names)
        for way, shares in names["shares"].items():
            found |= {f"{steps} steps, {way}, least": min(shares), f"{steps} steps, {way}, most": max(shares)}
    return found


if __name__ == "__main__":
    seeds.main(__doc__, ways)

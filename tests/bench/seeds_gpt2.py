"""Held-out loss of the tiny GPT-2 for several seeds: its spread is the measure for every difference that chapter 4 states.

    python -m tests.bench.seeds_gpt2 [--seeds 1024 1 2] [--set KEY=VALUE ...]

Seeds change the initial weights and the order of the data; the tokens are the product of chapter 4 (built if missing). About two
minutes a seed on two cores.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from course_lib.pretrain import products
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.subword.products import BPE
from course_lib.training.launch import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1024, 1, 2])
    parser.add_argument("--set", action="append", default=[], dest="changes")
    chosen = parser.parse_args()
    settings = config.load(PretrainConfig, "gpt2-tiny.yaml", chosen.changes)
    settings = products.with_products(settings, products.TOKENS.path(), BPE.path())
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in chosen.seeds:
            engine = replace(
                settings.engine,
                seed=seed,
                output_dir=Path(folder) / str(seed),
                save_steps=settings.engine.max_steps or 500,
            )
            run = train(Gpt2(replace(settings, engine=engine)), on_message=lambda line: None)
            losses.append([entry["loss"] for entry in run.log if entry["kind"] == "eval"][-1])
            print(f"seed {seed}: {losses[-1]:.3f} nats", flush=True)
    print(f"{mean(losses):.3f} nats, standard deviation {stdev(losses):.3f}, range {max(losses) - min(losses):.3f}")


if __name__ == "__main__":
    main()

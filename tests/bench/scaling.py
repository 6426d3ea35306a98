"""Bits per character of GPT-2 on the small world over width and number of steps: the table of section 4b.9.

    python -m tests.bench.scaling -o FOLDER [--widths 16 32] [--steps 125 250] [--rates 4e-3 8e-3] [--seed 1024]

Each run has a schedule of its own, one process and one thread. Of the learning rates, the one with the lowest loss on
the validation documents counts; what is printed are the bits of 600 other documents. Prints one line of CSV a run.
course_lib/pretrain/scaling.csv has those of seeds 1024 and 1025, each width for 1,000 steps and width 128 for fewer. A
rate is that of width 128; others get it times the root of 128 over the width. The initial weights are drawn with 1 over
the root of the width.
"""

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2, collate
from course_lib.settings import config
from course_lib.subword import folder as tokenizers
from course_lib.training import quick
from course_lib.world.genres import documents

from tests.bench import known_answer

WIDTHS, STEPS, LAYERS, SAMPLES = (16, 32, 64, 128), (125, 250, 500, 1000, 2000), 2, 4


def run_of(tokens: Path, tokenizer: Path, width: int, steps: int, seed: int, rate: float) -> Gpt2:
    """Return the training run of a width and a number of steps."""
    changes = [
        f"model.hidden_size={width}", f"model.num_layers={LAYERS}", f"model.num_attention_heads={max(1, width // 16)}",
        f"model.initializer_range={width**-0.5:.3f}", f"optimizer.lr.max={rate}", f"optimizer.lr.min={rate / 20}",
        f"engine.max_steps={steps}", f"engine.seed={seed}",
    ]  # fmt: skip
    settings = config.load(PretrainConfig, known_answer.SETTINGS, changes)
    return Gpt2(replace(settings, data=replace(settings.data, input=(tokens,), tokenizer=tokenizer)))


def train(run: Gpt2, steps: int) -> tuple[Any, int]:
    """Return a trained model and the number of its training tokens."""
    torch.manual_seed(run.settings.engine.seed)
    model, samples = run.model(), run.data(steps * SAMPLES).train
    rows = [samples[index] for index in range(steps * SAMPLES)]
    batches = (collate(rows[at : at + SAMPLES]) for at in range(0, len(rows), SAMPLES))
    quick.train(model, lambda batch: run.loss(model, batch), batches, run.settings.optimizer, steps)
    return model.eval(), sum(map(len, rows)) - len(rows)


@torch.no_grad()
def held_out_bits(model: Any, run: Gpt2, rows: list[Any]) -> float:
    """Return the bits of documents, each behind an end-of-document token."""
    nats = 0.0
    for at in range(0, len(rows), 40):
        batch = collate(rows[at : at + 40])
        nats += float(run.loss(model, batch)) * int((batch["tokens"][:, 1:] >= 0).sum())
    return nats / np.log(2)


def main() -> None:
    """Train every width for every number of steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, required=True, help="folder of the tokens")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--seed", type=int, default=1024)
    parser.add_argument("--rates", type=float, nargs="+", default=(4e-3, 8e-3), help="learning rates of width 128")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    vocab_size = config.load(PretrainConfig, known_answer.SETTINGS).model.vocab_size
    tokens, tokenizer = known_answer.prepare(chosen.o, vocab_size)
    held_out = [*documents(*known_answer.HELD_OUT)]
    codec, characters = tokenizers.load(tokenizer), sum(len(one.text) for one in held_out)
    source = sum(one.bits for one in held_out) / characters
    print("width,parameters,steps,tokens,bits,source,rate,seed", flush=True)
    for width, steps in product(chosen.widths, chosen.steps):
        best: list[Any] = []
        for rate in chosen.rates:
            run = run_of(tokens, tokenizer, width, steps, chosen.seed, rate * (128 / width) ** 0.5)
            model, read = train(run, steps)
            end, validation = run.special_ids[1], run.splits.validation
            choosing = [np.array([end, *validation.get(i, 0, int(size))]) for i, size in enumerate(validation.sizes)]
            best = min(
                best or [np.inf], [held_out_bits(model, run, choosing), model, read, rate], key=lambda row: row[0]
            )
        _, model, read, rate = best
        rows = sorted((np.array([end, *codec.encode(one.text), end]) for one in held_out), key=len)
        bits, size = held_out_bits(model, run, rows) / characters, sum(map(torch.numel, model.parameters()))
        print(f"{width},{size},{steps},{read},{bits:.4f},{source:.4f},{rate},{chosen.seed}", flush=True)


if __name__ == "__main__":
    main()

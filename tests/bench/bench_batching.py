"""Tokens per second with continuous batching against static batching, for texts of mixed lengths, by turns.

    OMP_NUM_THREADS=1 python -m tests.bench.bench_batching [--requests 48] [--places 16] [--mean 48] [--rounds 3] [--layers 6] [--hidden 512]

Requests in order of arrival, as a server has them: inputs of 8 to 64 tokens, every second one with a prefix of 20, and outputs whose lengths are
drawn from an exponential distribution, at most 256 tokens. `places` texts run at a time. Three sides, all greedy and with the same texts:

- continuous: serving/batch.py; a waiting request takes a place as soon as it is free;
- static, leaving: the same code, but the next group begins when the last text of the group has ended;
- static: `generate` of transformers on each group, until its longest text has ended, as a server without either does. Without prefixes.

Times are processor seconds.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from course_lib.serving import batch as batch_module
from course_lib.serving import reader
from course_lib.serving.engine import Engine
from course_lib.serving.request import TextRequest
from transformers.utils import logging

from tests.bench.bench_reader import NEVER, VOCABULARY, Texts, exported, hugging_face
from tests.bench.timing import by_turns

LONGEST = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"requests": 48, "places": 16, "mean": 48, "rounds": 3, "layers": 6, "hidden": 512, "threads": 1}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    batch_module.ROWS = arguments.places
    with tempfile.TemporaryDirectory() as place:
        loaded = reader.load(exported(Path(place), arguments.layers, arguments.hidden))
    engine = Engine(loaded)
    rows = requests(arguments.requests, arguments.mean)
    plain = [TextRequest(row.ids, row.output_length, end_id=NEVER) for row in rows]
    compare(
        "static, leaving",
        rows,
        partial(generated, engine, rows, False),
        partial(generated, engine, rows, True),
        arguments.rounds,
    )
    group = partial(groups, loaded.model, plain, arguments.places)
    compare("static", plain, partial(generated, engine, plain, False), group, arguments.rounds)


def compare(name: str, rows: Sequence[TextRequest], ours: Any, peer: Any, rounds: int) -> None:
    """Print both sides' speeds, and their ratio."""
    if ours() != peer():
        raise SystemExit(f"{name}: not the same texts")
    mine, other, ratio = by_turns(ours, peer, rounds, time.process_time)
    tokens = sum(row.output_length for row in rows)
    print(f"continuous {tokens / mine:.0f} tokens/s; {name} {tokens / other:.0f}: {1 / ratio:.2f} ×", flush=True)


def requests(count: int, mean: int) -> list[TextRequest]:
    rng = random.Random(0)
    found = []
    for number in range(count):
        ids = tuple(rng.randrange(3, VOCABULARY) for _ in range(rng.randint(8, 64)))
        length = min(LONGEST, 1 + int(rng.expovariate(1 / mean)))
        found.append(TextRequest(ids, length, 0 if number % 2 else None, end_id=NEVER))
    return found


def generated(engine: Engine, rows: Sequence[TextRequest], static: bool) -> Texts:
    """Static: a batch lasts until its longest text is finished; waiting texts join only then."""
    generations = [engine.generation(row) for row in rows]
    waiting, batch = list(generations), engine.batch()
    while waiting or batch.running:
        count = 0 if static and batch.running else batch.fitting(waiting)
        batch.join(waiting[:count])
        del waiting[:count]
        if batch.running:
            batch.step()
    return [generation.answer.ids for generation in generations]


def groups(model: Any, rows: Sequence[TextRequest], places: int) -> Texts:
    found: Texts = []
    for start in range(0, len(rows), places):
        group = rows[start : start + places]
        texts = hugging_face(model, [list(row.ids) for row in group], max(row.output_length for row in group))
        found += [[*row.ids, *text[: row.output_length]] for row, text in zip(group, texts)]
    return found


if __name__ == "__main__":
    main()

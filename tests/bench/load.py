"""Load on the real server: 64 connections for 5 minutes, every answer compared with the one that the engine gives alone.

    OMP_NUM_THREADS=1 python -m tests.bench.load [--connections 64] [--seconds 300] [--others 20] [--instances 1]

A GPT-NeoX with random weights and one prefix of 20 positions. Each connection sends one request after the other: inputs of 4 to 48 tokens, outputs of
1 to 64, with and without the prefix, greedy and sampled with a seed for each row. Counted are wrong answers, requests without an answer, and answers that the
server counts and no client got. The same with fewer connections, `--others` seconds each, shows the latency against the batch size.
"""

import argparse
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from course_lib.errors import CourseError
from course_lib.serving import reader, server
from course_lib.serving.client import Client
from course_lib.serving.engine import Engine
from course_lib.serving.request import RequestRow

from tests.bench.bench_reader import NEVER, VOCABULARY, exported

PERCENTILES = (50, 90, 99)


@dataclass
class Outcome:
    """What the connections saw."""

    seconds: float = 0.0
    tokens: int = 0
    latencies: list[float] = field(default_factory=list)  # of the right answers
    wrong: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        """Number of requests."""
        return len(self.latencies) + self.wrong + self.errors.total()

    def percentiles(self) -> list[float]:
        """Latencies at PERCENTILES [s]."""
        return [float(found) for found in np.percentile(self.latencies, PERCENTILES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"connections": 64, "seconds": 300, "others": 20, "instances": 1, "layers": 4, "hidden": 256}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = exported(Path(temporary), arguments.layers, arguments.hidden)
        engine = Engine.of(reader.load(folder))
        rows, answers = steady(engine, requests(256, VOCABULARY, 48, 64, tasks=1, end=NEVER))
        with server.running(folder, threads=1, instances=arguments.instances) as triton:
            numbers = [2**power for power in range(20) if 2**power < arguments.connections]
            for number in [*numbers, arguments.connections]:
                seconds = arguments.seconds if number == arguments.connections else arguments.others
                found, lost = measured(triton, rows, answers, number, seconds)
                print(line(number, found, lost), flush=True)


def steady(engine: Engine, rows: Sequence[RequestRow]) -> tuple[list[RequestRow], list[list[int]]]:
    """The rows whose text does not hang on the fifth digit of a logit, and their texts when each runs alone.

    The rounding of fp32 depends on the size of the batch. With random weights, all 32,000 tokens are nearly equally likely, so that a change of 1e-6
    chooses another token in about 1 % of the texts. Such a row has another text under noise of 1e-5, which has nothing to do with the batch.
    """
    rng = torch.Generator().manual_seed(0)

    def noisy(_module: Any, _inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits + 1e-5 * torch.randn(logits.shape, generator=rng)

    answers = [engine.run([row])[0].ids for row in rows]
    hook = engine.model.get_output_embeddings().register_forward_hook(noisy)
    others = [[answer.ids for answer in engine.run(rows)] for _ in range(4)]
    hook.remove()
    stable = [index for index, answer in enumerate(answers) if all(answer == other[index] for other in others)]
    print(f"{len(stable)} of {len(rows)} texts stay the same under noise of 1e-5", flush=True)
    return [rows[index] for index in stable], [answers[index] for index in stable]


def measured(
    triton: server.Server, rows: Sequence[RequestRow], answers: Sequence[list[int]], number: int, seconds: float
) -> tuple[Outcome, int]:
    """The outcome of so many seconds, and the answers that the server counts minus those that arrived."""
    before, end = answered(triton), time.monotonic() + seconds
    found = drive(triton, rows, answers, number, lambda _: time.monotonic() < end)
    return found, answered(triton) - before - len(found.latencies) - found.wrong


def line(number: int, found: Outcome, lost: int) -> str:
    times = " / ".join(f"{1000 * latency:.0f}" for latency in found.percentiles())
    return (
        f"| {number} | {found.sent} in {found.seconds:.0f} s | {found.wrong} wrong, {found.errors.total()} errors, {lost} lost or duplicated "
        f"| {times} | {found.tokens / found.seconds:.0f} |"
    ) + "".join(f"\n    {count} × {message}" for message, count in found.errors.items())


def drive(
    triton: server.Server,
    rows: Sequence[RequestRow],
    answers: Sequence[list[int]],
    connections: int,
    more: Callable[[int], bool],
) -> Outcome:
    """Let each connection send requests one after the other, as long as `more` (requests sent so far) is true."""
    outcome, started = Outcome(), time.perf_counter()

    def connection(number: int) -> Outcome:
        counted, rng, client = Outcome(), random.Random(number), Client(triton.http)
        while more(counted.sent):
            index = rng.randrange(len(rows))
            begun = time.perf_counter()
            try:
                found = text(client.infer(tensors(rows[index])))
            except CourseError as error:
                counted.errors[str(error)] += 1
                continue
            counted.tokens += len(found) - len(rows[index].ids)
            if found == answers[index]:
                counted.latencies.append(time.perf_counter() - begun)
            else:
                counted.wrong += 1
        client.close()
        return counted

    with ThreadPoolExecutor(connections) as pool:
        for counted in pool.map(connection, range(connections)):
            outcome.tokens += counted.tokens
            outcome.latencies += counted.latencies
            outcome.wrong += counted.wrong
            outcome.errors += counted.errors
    outcome.seconds = time.perf_counter() - started
    return outcome


def answered(triton: server.Server) -> int:
    """The number of requests that the server has answered, by its own metrics."""
    metrics = httpx.get(triton.metrics, trust_env=False).text
    return sum(int(float(count)) for count in re.findall(r"^nv_inference_request_success{[^}]*} (\S+)", metrics, re.M))


def requests(
    count: int, vocabulary: int, longest: int, new: int, tasks: int, end: int | None = None
) -> list[RequestRow]:
    """Requests of all kinds, no two alike. 0.875 is exact in the FP32 of a request."""
    rng = random.Random(0)
    found = []
    for number in range(count):
        ids = tuple(rng.randrange(3, vocabulary) for _ in range(rng.randint(4, longest)))
        chosen: dict[str, Any] = rng.choice(
            [{}, {"top_k": 5, "seed": number}, {"top_k": 40, "top_p": 0.875, "seed": number}]
        )
        found.append(RequestRow(ids, rng.randint(1, new), rng.choice([None, *range(tasks)]), end_id=end, **chosen))
    return found


def tensors(row: RequestRow) -> dict[str, Any]:
    """The request for one row."""
    optional = {"prompt_learning_task_name_ids": row.task, "end_id": row.end_id}
    return {
        "input_ids": [row.ids],
        "input_lengths": [[len(row.ids)]],
        "request_output_len": row.output_length,
        "runtime_top_k": row.top_k,
        "runtime_top_p": row.top_p,
        "random_seed": row.seed,
    } | {name: value for name, value in optional.items() if value is not None}


def text(found: dict[str, Any]) -> list[int]:
    """The ids of the only row's best text."""
    return list(found["output_ids"][0, 0, : found["sequence_length"][0, 0]].tolist())


if __name__ == "__main__":
    main()

"""The reader of an exported folder on the card in fp16, in process and behind Triton, against `generate`.

A GPT-NeoX of 24 layers of 2048 (1.3 billion parameters) with random weights and a prefix of 20; greedy, 8 or 64 prompts
of 32 tokens. All sides pick the most likely of nearly equal random tokens, so in 16 bits their texts part sooner or
later: the share of equal tokens is said.
"""

import time
from functools import partial
from pathlib import Path

import torch
from course_lib.errors import CourseError
from course_lib.serving import reader, server
from course_lib.serving.client import Client
from course_lib.serving.engine import Engine
from transformers.utils import logging

from tests.bench.bench_reader import VOCABULARY, Texts, behind_triton, exported, hugging_face, in_process
from tests.bench.gpu_common import GB, Bench, Part, Values, held_on_device
from tests.bench.timing import by_turns


def in_this_process(bench: Bench) -> Values:
    """Tokens per second of the engine and of `generate`, with and without the prefix."""
    logging.set_verbosity_error()
    loaded = reader.load(_folder(bench), device=bench.device)
    engine, rows, new = Engine.of(loaded), [], _new(bench)
    for name, task, batch in (("engine", None, 8), ("engine with prefix", 0, 8), ("engine", None, 64)):
        prompts = _prompts(bench, batch)
        side, peer = partial(in_process, engine, prompts, new, task), partial(hugging_face, loaded.model, prompts, new)
        # both return lists of numbers, so they wait for the card
        mine, _, ratio = by_turns(side, peer, 2)
        row = {"side": name, "batch": len(prompts), "tokens_per_second": len(prompts) * new / mine, "ratio": 1 / ratio}
        rows.append(row | ({"equal": _equal(side(), peer())} if task is None else {}))
    memory = 0.0 if bench.tiny else torch.cuda.max_memory_allocated()
    return {"kind": "serving", "what": _what(bench), "rows": rows, "allocated_gb": memory / GB}


def behind_server(bench: Bench) -> Values:
    """Tokens per second through Triton; without the server's wheel, the reason."""
    try:
        server.find()
    except CourseError as error:
        return {"kind": "note", "what": "Triton", "note": str(error)}
    folder, rows = _folder(bench), []
    with held_on_device() as peak, server.running(folder, timeout=120) as triton:
        client = Client(triton.http)
        for batch in (8, 64):
            prompts, new, times = _prompts(bench, batch), _new(bench), []
            for _ in range(3):  # the first is warm-up
                started = time.perf_counter()
                texts = behind_triton(client, prompts, new, None)
                times.append(time.perf_counter() - started)
            assert [len(text) for text in texts] == [new] * len(prompts)
            speed = len(prompts) * new / min(times[1:])
            rows.append({"side": "Triton", "batch": len(prompts), "tokens_per_second": speed})
        # the model's process holds the weights: on the card, not beside it
        used_bytes = peak()
    return {"kind": "serving", "what": _what(bench), "rows": rows, "held_gb": used_bytes / GB}


PARTS = [Part("reader", 75, in_this_process), Part("triton", 75, behind_server)]


def _what(bench: Bench) -> str:
    return "GPT-NeoX tiny, fp32" if bench.tiny else "GPT-NeoX 1.3B, fp16"


def _folder(bench: Bench) -> Path:
    layers, hidden = (2, 64) if bench.tiny else (24, 2048)
    return exported(bench.folder, layers, hidden, "fp32" if bench.tiny else "fp16")


def _new(bench: Bench) -> int:
    """Tokens that each prompt is continued by."""
    return 8 if bench.tiny else 64


def _prompts(bench: Bench, batch: int) -> list[list[int]]:
    rng = torch.Generator().manual_seed(0)
    rows = range(batch // 4 if bench.tiny else batch)
    return [torch.randint(3, VOCABULARY, (32,), generator=rng).tolist() for _ in rows]


def _equal(texts: Texts, others: Texts) -> float:
    """The share of equal tokens."""
    pairs = [one == other for text, peer in zip(texts, others) for one, other in zip(text, peer)]
    return sum(pairs) / len(pairs)

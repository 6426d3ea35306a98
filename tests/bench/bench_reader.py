"""Greedy tokens per second of the exported folder, by our engine in process and behind Triton, against Hugging Face's `generate`, by turns.

    python -m tests.bench.bench_reader [--batch 8] [--prompt 32] [--new 32] [--layers 6] [--hidden 512] [--rounds 7] [--threads 1]

A GPT-NeoX with random weights, vocabulary 32 000, one prefix of 20 positions. Rows have prompts of one length and no prefix, as `generate`
knows none; the texts are compared. Below: prompts of different lengths, which both sides pad on the left, and with the prefix. In process the
time is the processor's, which other programs do not change; through Triton it is the clock's.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.prefix.files import Prefix
from course_lib.serving import reader, server
from course_lib.serving.client import Client
from course_lib.serving.engine import Engine
from course_lib.serving.export import export
from course_lib.serving.request import RequestRow
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from transformers.utils import logging

from tests.bench.timing import by_turns

VOCABULARY, PREFIX, NEVER = 32000, 20, 32000
Texts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"batch": 8, "prompt": 32, "new": 32, "layers": 6, "hidden": 512, "rounds": 7, "threads": 1}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    rng = torch.Generator().manual_seed(0)
    even = [torch.randint(3, VOCABULARY, (arguments.prompt,), generator=rng).tolist() for _ in range(arguments.batch)]
    uneven = [row[: arguments.prompt * (index + 1) // arguments.batch] for index, row in enumerate(even)]
    new, tokens = arguments.new, arguments.batch * arguments.new
    with tempfile.TemporaryDirectory() as temporary:
        folder = exported(Path(temporary), arguments.layers, arguments.hidden)
        loaded = reader.load(folder)
        engine = Engine.of(loaded)
        with server.running(folder, threads=arguments.threads) as triton:
            client = Client(triton.http)
            kinds = (("one length", even, None), ("lengths mixed", uneven, None), ("with the prefix", even, 0))
            for (name, prompts, task), side in product(kinds, ("engine", "Triton")):
                write = partial(in_process, engine) if side == "engine" else partial(behind_triton, client)
                run, peer = partial(write, prompts, new, task), partial(hugging_face, loaded.model, prompts, new)
                if task is None and run() != peer():
                    raise SystemExit(f"{side} does not write the same text")
                clock = time.process_time if side == "engine" else time.perf_counter
                mine, other, ratio = by_turns(run, peer, arguments.rounds, clock)
                speeds = f"{tokens / mine:.0f} tokens/s, generate {tokens / other:.0f}: {1 / ratio:.2f} ×"
                print(f"{name}: {side} {speeds}", flush=True)


def exported(folder: Path, layers: int, hidden: int, dtype: NumberFormat = "fp32") -> Path:
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=max(8, hidden // 128), intermediate_size=4 * hidden,
        max_position_embeddings=1024, use_parallel_residual=False, bos_token_id=1, eos_token_id=2,
    ))  # fmt: skip
    model.save_pretrained(folder / "model")
    prefix = Prefix(torch.randn(PREFIX, 2 * layers * hidden), "task")
    export(folder / "model", folder / "exported", dtype=dtype, prefixes=[prefix])
    return folder / "exported"


def in_process(engine: Engine, prompts: Sequence[list[int]], new: int, task: int | None) -> Texts:
    answers = engine.run([RequestRow(tuple(row), new, task, end_id=NEVER) for row in prompts])
    return [answer.ids[len(row) :] for answer, row in zip(answers, prompts)]


def behind_triton(client: Client, prompts: Sequence[list[int]], new: int, task: int | None) -> Texts:
    longest = max(map(len, prompts))
    tensors = {
        "input_ids": [[*row, *[0] * (longest - len(row))] for row in prompts],
        "input_lengths": [[len(row)] for row in prompts],
        "request_output_len": new,
        "end_id": NEVER,
    } | ({} if task is None else {"prompt_learning_task_name_ids": task})
    found = client.infer(tensors)["output_ids"][:, 0]
    return [line[len(row) : len(row) + new].tolist() for line, row in zip(found, prompts)]


def hugging_face(model: GPTNeoXForCausalLM, prompts: Sequence[list[int]], new: int) -> Texts:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts], device=model.device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts], device=model.device)
    with torch.inference_mode():
        found = model.generate(
            ids, attention_mask=mask, max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    return found[:, longest:].tolist()


if __name__ == "__main__":
    main()

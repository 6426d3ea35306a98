"""Load and latency of `course serve --openai`, beside transformers' own `generate` of the same greedy texts.

    python -m tests.bench.openai_load [--model aozora] [--clients 1 8 64] [--tokens 64] [--rounds 3] [--threads 2]

For each number of clients, in turns: that many streamed requests at the same time, asked by the real `openai` client,
and `generate` with the same prompts as one batch (no stream: its first token comes with the last). Every text of the
server is compared with that of `generate`. The server runs in a process of its own, its clients in another.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import openai
import torch
from course_lib.checkpoints import aozora
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec

OPENINGS = (
    "昔々、",
    "その夜、探偵は",
    "「おかあさん、",
    "山の上から見ると",
    "雨が",
    "ある日のこと、",
    "駅の前で",
    "手紙には",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(aozora.NAME))
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    for name, default in {"tokens": 64, "rounds": 3, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = Generator(aozora.named(options.model), text_codec.load)
    command = [sys.executable, "-m", "course_lib.cli", "serve", "--openai", str(options.model), "--port", "8765"]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout
            url = re.findall(r"http\S+/v1", server.stdout.readline())[0]
            for clients in options.clients:
                report(url, generator, clients, options.tokens, options.rounds)
        finally:
            server.terminate()


def report(url: str, generator: Generator, clients: int, tokens: int, rounds: int) -> None:
    """Print a line for one number of clients."""
    prompts = [OPENINGS[index % len(OPENINGS)] for index in range(clients)]
    settings = GenerateConfig(strategy="greedy", max_new_tokens=tokens)
    generator.generate(prompts[:1], settings)
    ours, peer, firsts, wrong = [], [], [], 0
    for _ in range(rounds):
        started = time.perf_counter()
        expected = [texts[0].continuation for texts in generator.generate(prompts, settings)]
        peer.append(time.perf_counter() - started)
        started = time.perf_counter()
        answers = asyncio.run(ask(url, generator.folder.name, prompts, tokens))
        ours.append(time.perf_counter() - started)
        firsts += [first for _, first in answers]
        wrong += sum(text != right for (text, _), right in zip(answers, expected, strict=True))
    ratio = statistics.median(b / a for a, b in zip(ours, peer, strict=True))
    per_second = clients * tokens / statistics.median(ours)
    print(
        f"{clients:3} clients: {per_second:6.0f} tokens/s, {ratio:.2f} × generate; first token after "
        f"{statistics.median(firsts):.2f} s (longest {max(firsts):.2f}), generate's texts after "
        f"{statistics.median(peer):.2f} s; {wrong} of {rounds * clients} texts differ",
        flush=True,
    )


async def ask(url: str, model: str, prompts: list[str], tokens: int) -> list[tuple[str, float]]:
    """Return the text and the seconds to the first piece of each request; all are sent at the same time."""

    async def one(client: openai.AsyncOpenAI, prompt: str) -> tuple[str, float]:
        started, first, text = time.perf_counter(), 0.0, ""
        stream = await client.completions.create(
            model=model, prompt=prompt, temperature=0, max_tokens=tokens, stream=True
        )
        async for part in stream:
            first = first or time.perf_counter() - started
            text += part.choices[0].text
        return text, first

    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        return await asyncio.gather(*[one(client, prompt) for prompt in prompts])


if __name__ == "__main__":
    main()

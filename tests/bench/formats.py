"""A GGUF file in llama.cpp, for 7.8: its bytes, the bits of the tales, tokens per second of processor time.

    course gguf export aozora -o aozora.gguf
    python -m tests.bench.formats aozora.gguf [--tales 4] [--tokens 64]     with xllamacpp (a wheel)

llama.cpp's server tells log probabilities of new tokens only. So each token of a tale is asked for by itself, behind
those before it, which the server remembers, with the log probabilities of the whole vocabulary.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import httpx
from course_lib import paths
from course_lib.checkpoints import aozora
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.scoring import one_line
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec


def main() -> None:
    """Print the three figures."""
    import xllamacpp

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tales", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_parallel, settings.port = str(options.file), 512, 1, 18081
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    client = httpx.Client(base_url=server.listening_address, trust_env=False, timeout=600)

    def complete(ids: list[int], **asked: Any) -> Any:
        asked |= {"prompt": ids, "temperature": 0, "cache_prompt": True}
        return client.post("/completion", json=asked).raise_for_status().json()

    scorer = FolderScorer(Generator(aozora.folder(), text_codec.load))
    texts = [
        one_line(path.read_text(encoding="utf8"))
        for path in sorted(paths.data("classified/tale/01.txt").parent.glob("*.txt"))
    ]
    texts = texts[: options.tales]
    seconds = []
    for _ in range(4):
        started = time.process_time()
        complete([scorer.begin, *scorer.encode("昔々、")], n_predict=options.tokens, ignore_eos=True)
        seconds.append(time.process_time() - started)
    rate = options.tokens / min(seconds)
    print(f"{options.file.stat().st_size:,} bytes; {rate:.0f} tokens per second of processor time", flush=True)
    nats, rows = 0.0, len(scorer.generator.codec)
    for text in texts:
        tokens = scorer.tokens(text, end=True)
        for at, target in enumerate(tokens.target, 1):
            found = complete(tokens.read[:at], n_predict=1, n_probs=rows)["completion_probabilities"][0]
            nats -= next(one["logprob"] for one in found["top_logprobs"] if one["id"] == target)
        print(f"{nats / math.log(2):.2f} bits", flush=True)
    characters = sum(map(len, texts))
    print(f"{len(texts)} tales, {characters:,} characters: {nats / math.log(2) / characters:.4f} bits per character")


if __name__ == "__main__":
    main()

"""Greedy generation by turns on one thread: Hugging Face, the reader of exported folders, CTranslate2 in fp32 and int8.

    OMP_NUM_THREADS=1 python -m tests.bench.bench_serving [--new 64] [--rounds 3]

Random weights, batches of 1 and 8, prompts of 32 tokens, no GPU: GPT-2 small, and GPT-NeoX in the shape of rinna/japanese-gpt-neox-small.
Times are CPU seconds of the whole call, prompt included; a ratio is the median over rounds in each of which all engines ran. The texts of the fp32
engines are compared.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from course_lib.checkpoints.compute import one_thread
from course_lib.models import frozen_base
from course_lib.serving import ct2, export, latency, reader
from course_lib.serving.engine import Engine
from course_lib.serving.latency import Rows, Writer
from course_lib.serving.request import TextRequest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

PROMPT, BATCHES = 32, (1, 8)


@dataclass(frozen=True)
class Speed:
    """The times of one engine and one batch size, for calls that include the prompts."""

    engine: str
    batch: int  # sequences
    new: int  # new tokens per sequence
    seconds: tuple[float, ...]  # CPU seconds, one per round

    @property
    def latency(self) -> float:
        return statistics.median(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        return self.batch * self.new / self.latency

    def times(self, other: "Speed") -> float:
        """How many times as fast as `other`: the median of the rounds' ratios."""
        return statistics.median(theirs / mine for mine, theirs in zip(self.seconds, other.seconds, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", type=int, default=64, help="tokens of a text")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name, model in (("GPT-2 small", gpt2()), ("GPT-NeoX small", neox())):
        with tempfile.TemporaryDirectory() as place:
            writers = engines(model, Path(place))
            generator = torch.Generator().manual_seed(0)
            prompts = torch.randint(model.config.vocab_size, (max(BATCHES), PROMPT), generator=generator).tolist()
            texts = [write(prompts, arguments.new) for engine, write in writers.items() if "int8" not in engine]
            same = "the same" if all(text == texts[0] for text in texts) else "DIFFERENT"
            print(f"{name}: fp32 texts are {same}")
            speeds = measure(writers, prompts, arguments.new, arguments.rounds)
        for speed in speeds:
            first = next(other for other in speeds if other.batch == speed.batch)
            print(
                f"  batch {speed.batch}  {speed.engine:18} {speed.latency:6.2f} s {speed.tokens_per_second:7.1f} tokens/s {speed.times(first):6.2f} ×"
            )


def measure(writers: Mapping[str, Writer], prompts: Rows, new: int, rounds: int) -> list[Speed]:
    """The engines take turns on one thread; the first round is warm-up."""
    speeds = []
    with one_thread():
        for batch in BATCHES:
            seconds: dict[str, list[float]] = {name: [] for name in writers}
            for turn in range(rounds + 1):
                for name, write in writers.items():
                    started = time.process_time()
                    written = write(prompts[:batch], new)
                    seconds[name] += [time.process_time() - started] * bool(turn)
                    assert [len(row) for row in written] == [new] * batch, name
            speeds += [Speed(name, batch, new, tuple(times)) for name, times in seconds.items()]
    return speeds


def our_reader(folder: Path) -> Writer:
    engine = Engine(reader.load(folder))

    def write(rows: Rows, new: int) -> list[list[int]]:
        common = TextRequest((), new, top_k=1, bad_words=((engine.end_id,),), end_id=engine.vocabulary)
        asked = [replace(common, ids=tuple(row)) for row in rows]
        return [answer.ids[len(row) :] for answer, row in zip(engine.run(asked), rows, strict=True)]

    return write


def gpt2() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0))


def neox() -> Any:
    torch.manual_seed(0)
    rope = {"rope_type": "default", "partial_rotary_factor": 1.0, "rope_theta": 10000.0}
    return GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=44416, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, rope_parameters=rope,
        use_parallel_residual=False, bos_token_id=0, eos_token_id=0,
    ))  # fmt: skip


def engines(model: Any, place: Path) -> dict[str, Writer]:
    """The four, each from a folder of its own."""
    words = {f"w{number}": number for number in range(model.config.vocab_size)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, "w1")), unk_token="w1", eos_token="w0"
    )
    source = place / "model"
    model.save_pretrained(source)
    tokenizer.save_pretrained(source)
    export.export(source, place / "ft")
    ct2.export(source, place / "fp32")
    ct2.export(source, place / "int8", "int8")
    return {
        "Hugging Face": latency.hugging_face(frozen_base.load(source)),
        "our reader": our_reader(place / "ft"),
        "CTranslate2 fp32": latency.ct2(place / "fp32"),
        "CTranslate2 int8": latency.ct2(place / "int8"),
    }


if __name__ == "__main__":
    main()

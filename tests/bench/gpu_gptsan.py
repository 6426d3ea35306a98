"""GPTSAN 2.8B with 14 extra layers, random weights: the extra stage over a frozen base, and generation.

Training takes `course gptsan train`'s own path: bf16, one rank, with spout, examples of 1024 random tokens, the largest
power of two up to 32 as micro batch that the planner lets on the card. Generation writes behind a prompt of 32 tokens,
with a class on the spout.
"""

import json
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from course_lib.gptsan.config import GenerateConfig, GPTSanRunConfig
from course_lib.gptsan.examples import ExampleWriter
from course_lib.gptsan.freeze import BASE
from course_lib.gptsan.generate import GPTSanGenerator, Prompt
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.run import GPTSanRun
from course_lib.gptsan.shape import GPTSanShape
from course_lib.gptsan.tokenizer import load_tokenizer
from course_lib.settings import config
from course_lib.training.run import Run

from tests.bench.gpu_common import GB, Bench, Part, Values, batches, common_changes, largest, overrides
from tests.gptsan import handmade

TINY = {"vocab_size": 400, "max_position_embeddings": 136, "d_model": 32, "d_ff": 64, "d_ext": 64, "d_spout": 8}
TINY |= {"num_heads": 4, "num_experts": 4, "num_switch_layers": 2, "num_ext_layers": 2}
CLASSES = 4


def shape(bench: Bench) -> GPTSanShape:
    """The published shape with 14 extra layers, or a tiny one."""
    return GPTSanShape(**TINY) if bench.tiny else GPTSanShape(num_ext_layers=14)


def extra_stage(bench: Bench) -> Values:
    """The figures of training the extra layers and the spout."""
    _examples(bench)
    _, found = largest(bench, batches(bench, partial(_run, bench)))
    return {"kind": "training", "what": f"{_name(bench)}, base frozen"} | found


def generation(bench: Bench) -> Values:
    """Tokens per second by the number of texts at once."""
    length = 16 if bench.tiny else 128
    folder = handmade.write(bench.folder / "tokenizer")
    words = load_tokenizer(folder)
    named = {"pad_token_id": words.swe.sep, "eos_token_id": words.swe.eot, "separator_token_id": words.swe.seg}
    with torch.device(bench.device):
        built = GPTSanForCausalLM._from_config(
            GPTSanConfig(**config.to_dict(shape(bench)), **named), dtype=torch.bfloat16
        )
    built.final_logits_bias[0, words.swe.eot] = -1e9  # no text ends
    generator, prompt, rows = GPTSanGenerator(built, words), Prompt(list(range(32)), [], 1), []
    for texts in (1, 4) if bench.tiny else (1, 16, 64):
        for new in (8, length):  # the first is warm-up
            settings = GenerateConfig(num_generate=texts, max_new_tokens=new, spout=1)
            started = perf_counter()
            found = generator.tokens(prompt, settings).tolist()  # waits for the card
            seconds = perf_counter() - started
        assert [len(row) for row in found] == [length] * texts
        rows.append({"texts": texts, "new_tokens": length, "tokens_per_second": texts * length / seconds})
    memory = 0.0 if bench.tiny else torch.cuda.max_memory_allocated()
    return {"kind": "generation", "what": _name(bench), "rows": rows, "allocated_gb": memory / GB}


PARTS = [Part("gptsan-extra", 140, extra_stage), Part("gptsan-generation", 70, generation)]


def _name(bench: Bench) -> str:
    return "GPTSAN tiny" if bench.tiny else "GPTSAN 2.8B + 14 layers"


def _run(bench: Bench, micro: int, recompute: str) -> Run:
    model: Any = {"shape": config.to_dict(shape(bench)), "ignore": BASE, "recompute": recompute}
    data = {"input": str(bench.folder / "examples"), "tokenizer": str(bench.folder / "tokenizer"), "held_out": 0.0}
    values = {"model": model, "data": data, "spout": {"mode": "onehot"}, "batch": {"micro_size": micro}}
    changes = common_changes(bench, f"micro-{micro}-{recompute}", "bf16")
    return GPTSanRun(config.build(GPTSanRunConfig, values, overrides(changes)))


def _examples(bench: Bench) -> None:
    """Random examples of a few classes, and a tokenizer folder."""
    handmade.write(bench.folder / "tokenizer")
    count, length, highest = (64, 128, 399) if bench.tiny else (1024, 1024, shape(bench).vocab_size - 1)
    folder = bench.folder / "examples"
    folder.mkdir()
    tokens = np.random.default_rng(0).integers(0, highest, (count, length + 1), endpoint=True)
    with ExampleWriter(folder, length) as writer:
        numbers = np.arange(count)
        labels = numbers % CLASSES
        writer.append(x=tokens[:, :-1], y=tokens[:, 1:], i=labels, document=numbers)
    classes = {str(label): count // CLASSES for label in range(CLASSES)}
    report = {"examples": count, "num_context": length, "classes": classes, "largest_id": highest}
    (folder / "encoding.json").write_text(json.dumps(report))

"""A prefix for a frozen base of rinna's 3.6B shape, random weights, through `course prefix train`'s own path, in fp16.

The settings are those of prefix-neox-3.6b.yaml, without offload, on one rank. Rows are 64 tokens long; the micro batch
is the largest power of two up to 64 that the planner lets on the card.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.models.causal import model_config
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.run import PrefixRun
from course_lib.settings import config
from course_lib.training.run import Run
from transformers import AutoModelForCausalLM

from tests.bench.gpu_common import Bench, Part, Values, common_changes, largest, neox_shape, overrides
from tests.bench.gpu_pretrain import ENTRIES, stand_in

ROWS, LENGTH = 512, 64


def run(bench: Bench) -> Values:
    """The figures of training a prefix."""
    stand_in(bench.folder / "base")
    _weights(bench)
    words = np.random.default_rng(0).integers(3, ENTRIES, (ROWS, LENGTH))
    lines = (json.dumps({"text": " ".join(f"w{word}" for word in row)}) + "\n" for row in words)
    (bench.folder / "texts.jsonl").write_text("".join(lines))
    _, found = largest(bench, _choices(bench))
    return {"kind": "training", "what": f"prefix of GPT-NeoX {'tiny' if bench.tiny else '3.6B'}, base frozen"} | found


PARTS = [Part("prefix-3.6b-fp16", 125, run)]


def _weights(bench: Bench) -> None:
    """Random weights of the base, in the run's format."""
    dtype = TORCH[bench.precision("fp16")]  # type: ignore[index]
    with torch.device(bench.device):
        built = AutoModelForCausalLM.from_config(model_config(neox_shape(bench), 2, 2), dtype=dtype)
    built.save_pretrained(bench.folder / "base")
    del built
    if bench.device == "cuda":
        torch.cuda.empty_cache()


def _choices(bench: Bench) -> Iterator[Callable[[], Run]]:
    for micro in (2,) if bench.tiny else (64, 32, 16, 8, 4, 2):
        yield partial(_run, bench, micro)


def _run(bench: Bench, micro: int) -> Run:
    changes = common_changes(bench, f"micro-{micro}", "fp16") | {
        "model.base": bench.folder / "base", "data.input": bench.folder / "texts.jsonl", "data.form": "samples",
        "data.begin": "with", "batch.local_size": micro, "batch.micro_size": micro,
        "optimizer.lr.warmup_steps": 0, "model.warm_start_steps": 5 if bench.tiny else 200,
    }  # fmt: skip
    return PrefixRun(config.load(PrefixConfig, "prefix-neox-3.6b.yaml", overrides(changes)))

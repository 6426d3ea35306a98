"""GPT-2 124M, 345M and XL through `course pretrain`'s own path, on random tokens, sequences of 1024.

One rank, and the largest power of two up to 32 as micro batch that the planner lets on the card; each block is
recomputed only where a micro batch of 4 does not fit without. Useful FLOPs are those of `flops_per_token`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.pretrain.indexed import IndexedWriter
from course_lib.settings import config
from course_lib.subword.folder import Preparation, save
from course_lib.training.run import Run as TrainingRun
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from tests.bench.gpu_common import Bench, Part, Values, batches, common_changes, largest, overrides

ENTRIES = 300  # of the stand-in tokenizer


@dataclass(frozen=True)
class Run:
    """What differs between the runs."""

    model: str  # in the table
    config: str  # under course_lib/configs
    dtype: str = "bf16"
    compile: bool = False
    dropout: float = 0.0
    # log2 of the first loss scale; high, so that the first steps overflow and are skipped until the scale has fallen
    scale: int = 24


SMALL, MEDIUM, XL = ("124M", "gpt2-125m"), ("345M", "gpt2-345m"), ("XL", "gpt2-xl")
# in the order of their weight, with the seconds that each may take
RUNS = {
    "gpt2-124m": (Run(*SMALL), 70),
    "gpt2-124m-compile": (Run(*SMALL, compile=True), 85),
    "gpt2-xl": (Run(*XL), 115),
    "gpt2-xl-compile": (Run(*XL, compile=True), 170),
    "gpt2-345m": (Run(*MEDIUM), 65),
    "gpt2-345m-compile": (Run(*MEDIUM, compile=True), 110),
    "gpt2-345m-fp16": (Run(*MEDIUM, dtype="fp16"), 65),
    "gpt2-xl-dropout": (Run(*XL, dropout=0.1), 110),
}


def run(chosen: Run, bench: Bench) -> Values:
    """The figures of a run."""
    prepare(bench.folder)
    _, found = largest(bench, batches(bench, partial(_run, chosen, bench)))
    what = f"GPT-2 {'tiny' if bench.tiny else chosen.model}"
    return {"kind": "training", "what": what, "dropout": chosen.dropout} | found


PARTS = [Part(name, seconds, partial(run, chosen)) for name, (chosen, seconds) in RUNS.items()]


def _run(chosen: Run, bench: Bench, micro: int, recompute: str) -> TrainingRun:
    length = 128 if bench.tiny else 1024
    changes = common_changes(bench, f"micro-{micro}-{recompute}", chosen.dtype) | {
        "data.input": f"[{bench.folder}/tokens]", "data.tokenizer": bench.folder / "tokenizer",
        "data.seq_length": length, "data.train_tokens": "null", "model.max_position_embeddings": length,
        "model.recompute": recompute,
        "model.hidden_dropout_prob": chosen.dropout, "model.attention_probs_dropout_prob": chosen.dropout,
        "batch.global_size": "null", "batch.local_size": micro, "batch.micro_size": micro,
        "optimizer.lr.decay_steps": "null",
        "precision.initial_scale_power": chosen.scale, "engine.test_iters": 0, "engine.compile": chosen.compile,
    }  # fmt: skip
    file = "gpt2-tiny-text.yaml" if bench.tiny else f"{chosen.config}.yaml"
    return Gpt2(config.load(PretrainConfig, file, overrides(changes)))


def prepare(folder: Path) -> None:
    """Tokens that every shape has rows for, and a tokenizer folder."""
    stand_in(folder / "tokenizer")
    with IndexedWriter(folder / "tokens", np.dtype("<u2")) as writer:
        writer.append(np.random.default_rng(0).integers(3, 6000, 4_000_000, "<u2"), np.full(4_000, 1_000))


def stand_in(folder: Path) -> None:
    """A tokenizer folder of the words w3, w4 and so on."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, ENTRIES)}
    tokenizer = Tokenizer(WordLevel(words, "<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    folder.mkdir()
    save(tokenizer, Preparation(False, False), folder)

"""Tokens per second of `train` against a plain loop: the prototype in tests/training/prototype.py, with Muon.

    python -m tests.bench.bench_loop [--shape 256 6 4 256 16] [--dtype bf16] [--steps 8] [--rounds 3] [--threads 1]

The same shape, tokens, optimizer, number format and allocator settings, not compiled on CPU, compiled on a card. The
sides take turns, each in a process of its own; a turn is the second and third of three times `--steps` steps.
`--busy` counts processor time, for a machine that has other work. Exit code 1 if `train` makes fewer than 0.95 times
the tokens per second of the prototype, in the median of the rounds.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config

LEAST = 0.95
# width, layers, heads, positions, batch: of gpt2-laptop and of gpt2-aozora
CPU_SHAPE, GPU_SHAPE = (256, 6, 4, 256, 16), (512, 6, 8, 512, 128)
VOCABULARY = 12_000
# What `train` sets for itself on CPU: glibc keeps the logits' memory from step to step. Alone it is worth as much as a third.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def settings_of(shape: tuple[int, ...], dtype: str, steps: int, threads: int, folder: Path) -> PretrainConfig:
    """Returns the settings of both sides, those of gpt2-aozora but for the shape; three times `steps` steps are trained."""
    import torch

    width, layers, heads, positions, batch = shape
    changes = [
        f"model.hidden_size={width}", f"model.num_layers={layers}", f"model.num_attention_heads={heads}",
        f"model.max_position_embeddings={positions}", f"data.seq_length={positions}", f"batch.global_size={batch}",
        f"batch.micro_size={batch}", f"data.input=[{folder}/tokens]", f"data.tokenizer={folder}/tokenizer",
        f"precision.dtype={dtype}", f"launch.threads={threads}", f"engine.output_dir={folder}/run",
        "engine.max_seconds=null", f"engine.max_steps={3 * steps}", f"engine.logging_freq={steps}", "engine.tracking=[]",
        f"engine.compile={torch.cuda.is_available()}",
    ]  # fmt: skip
    return config.load(PretrainConfig, "gpt2-aozora.yaml", changes)


def prepare(folder: Path, tokens: int) -> None:
    """Writes random tokens, and a tokenizer folder."""
    import numpy as np
    from course_lib.pretrain.indexed import IndexedWriter

    from tests.bench.gpu_pretrain import stand_in

    stand_in(folder / "tokenizer")
    with IndexedWriter(folder / "tokens", np.dtype("<u2")) as writer:
        documents = -(-tokens // 1000) + 1
        writer.append(
            np.random.default_rng(0).integers(3, VOCABULARY, documents * 1000, "<u2"), np.full(documents, 1000)
        )


def ours(settings: PretrainConfig, clock: Callable[[], float]) -> float:
    """Returns the tokens per second of `train`, by the times of the lines of its log."""
    from course_lib.pretrain.gpt2 import Gpt2
    from course_lib.training.loop import train

    times: list[float] = []
    train(Gpt2(settings), on_message=lambda line: times.append(clock()) if "[train]" in line else None)
    # After step 1 and each third.
    assert len(times) == 4 and settings.engine.max_steps
    tokens = settings.engine.max_steps * settings.batch.resolve(1).total * settings.data.seq_length
    return 2 / 3 * tokens / (times[3] - times[1])


def prototype(settings: PretrainConfig, clock: Callable[[], float]) -> float:
    """Returns the tokens per second of the plain loop. Its tokens lie on the device."""
    import numpy as np
    import torch
    from course_lib.models.causal import build_model

    from tests.training import prototype as plain

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    model = build_model(settings.model).to(device)
    tokens = torch.from_numpy(np.fromfile(settings.data.input[0].with_suffix(".bin"), "<u2").astype(np.int32)).to(
        device
    )
    length, size = settings.data.seq_length, settings.batch.resolve(1).total
    order = torch.randperm((len(tokens) - 1) // length).to(device) * length
    columns = torch.arange(length + 1, device=device)
    steps = settings.engine.max_steps
    assert steps
    batches = (tokens[order[at * size : (at + 1) * size, None] + columns].long() for at in range(steps))
    began = 0.0
    for step, _ in enumerate(plain.train(model, batches, steps, settings, settings.engine.compile), 1):
        if step in (steps // 3, steps):
            if device == "cuda":
                torch.cuda.synchronize()
            if step == steps:
                return (steps - steps // 3) * size * length / (clock() - began)
            began = clock()
    raise AssertionError


SIDES = {"ours": ours, "prototype": prototype}


def main() -> None:
    """Measures in turns, or one side, and prints JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=5, metavar=("WIDTH", "LAYERS", "HEADS", "POSITIONS", "BATCH"))
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--steps", type=int, help="8 on CPU, 100 on a card")
    parser.add_argument("--rounds", type=int, help="3 on CPU, 2 on a card")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="count processor time")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()

    import torch

    on_card = torch.cuda.is_available()
    shape = tuple(chosen.shape or (GPU_SHAPE if on_card else CPU_SHAPE))
    steps, rounds = chosen.steps or (100 if on_card else 8), chosen.rounds or (2 if on_card else 3)
    if chosen.side:
        torch.set_num_threads(chosen.threads)
        with TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder, 3 * steps * shape[4] * shape[3])
            settings = settings_of(shape, chosen.dtype, steps, chosen.threads, folder)
            print(
                json.dumps(
                    {"tokens_per_second": SIDES[chosen.side](settings, process_time if chosen.busy else perf_counter)}
                )
            )
        return
    speeds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, found in speeds.items():
            command = [sys.executable, "-m", "tests.bench.bench_loop", "--side", side, "--dtype", chosen.dtype]
            command += ["--steps", str(steps), "--threads", str(chosen.threads), "--shape", *map(str, shape)]
            command += ["--busy"] if chosen.busy else []
            environment = os.environ | KEEP_MEMORY | {"OMP_NUM_THREADS": str(chosen.threads)}
            said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
            found.append(json.loads(said.splitlines()[-1])["tokens_per_second"])
            print(f"{side}: {found[-1]:,.0f} tokens/s", flush=True)
    ratio = median(speeds["ours"]) / median(speeds["prototype"])
    print(json.dumps({"shape": shape, "dtype": chosen.dtype, "threads": chosen.threads, "ratio": ratio} | speeds))
    if ratio < LEAST:
        raise SystemExit(f"{ratio:.3f} of the prototype's tokens per second; wanted: {LEAST}")


if __name__ == "__main__":
    main()

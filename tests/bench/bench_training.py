"""A training step on CPU: ours against a bare Hugging Face Trainer and a bare loop like nanoGPT's, one rank against two; all by turns.

    python -m tests.bench.bench_training [--rounds 15] [--steps 10] [--set section.key=value]

Shape: gpt2-tiny's (4 × 128, 128 tokens, micro batch 8, fp32), one thread a rank. Every side is a process of its own that stands ready after
a warm-up, takes STEPS steps when it is its turn, and waits; quoted is the median over the rounds of the ratio to ours.
`ours` is the task Gpt2 as a rank of `course pretrain` runs it, ZeRO-2 and log included; `trainer` has labels in, samples from memory, its
own defaults and our log interval; `trainer + ZeRO-2` gets our DeepSpeed JSON too; `bare loop` has its own model, fused AdamW and clipping;
With `--only SIDE`, once for each, the others are left out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.indexed import IndexedWriter, dtype_for
from course_lib.settings import config
from course_lib.training import log
from course_lib.training.launch import environment_of_ranks, free_port
from course_lib.training.nodes import HERE, Nodes

CONFIG = Path(config.__file__).parent / "configs" / "gpt2-tiny.yaml"
# a side → its ranks
SIDES = {"ours": 1, "ours, 2 ranks": 2, "trainer + ZeRO-2": 1, "trainer": 1, "bare loop": 1}
WARM_UP = 10  # steps
END = 20_000  # steps; nobody gets there


class Turns:
    """Stops this process after every so many steps until it is its turn again."""

    def __init__(self, steps: int) -> None:
        self.steps, self.left, self.started = steps, WARM_UP, (0.0, 0.0)

    def step(self) -> None:
        self.left -= 1
        if not self.left:
            print("turn", *(now - before for now, before in zip(clocks(), self.started, strict=True)), flush=True)
            if not sys.stdin.readline():
                os._exit(0)
            self.left, self.started = self.steps, clocks()


def clocks() -> tuple[float, float]:
    return perf_counter(), process_time()


def ours(settings: PretrainConfig, turns: Turns) -> None:
    """As worker.py; the pause between two turns stands the meter still."""
    from course_lib.pretrain.gpt2 import Gpt2
    from course_lib.training.trainer import RunTrainer

    trainer = RunTrainer(Gpt2(settings), settings.batch.resolve(int(os.environ["WORLD_SIZE"])), END)
    trainer.add_callback(_callback(turns, trainer.meter))
    trainer.run_to_end(None)


def _callback(turns: Turns, meter: log.Meter | None = None) -> Any:
    from transformers import TrainerCallback

    class Step(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if meter:
                with meter.stopped():
                    turns.step()
            else:
                turns.step()

    return Step()


def bare_trainer(settings: PretrainConfig, turns: Turns, zero: bool) -> None:
    import torch
    from course_lib.models.causal import model_config
    from course_lib.training.deepspeed_config import deepspeed_json
    from transformers import GPT2LMHeadModel, Trainer, TrainingArguments

    length, data = settings.data.seq_length, tokens(settings)

    class Samples(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(data) // length

        def __getitem__(self, i: int) -> dict[str, Any]:
            ids = torch.from_numpy(data[i * length : (i + 1) * length])
            return {"input_ids": ids, "labels": ids}

    arguments = TrainingArguments(
        output_dir=settings.engine.output_dir, use_cpu=True, max_steps=END, save_strategy="no", disable_tqdm=True,
        per_device_train_batch_size=settings.batch.micro_size, logging_steps=settings.engine.logging_freq, report_to="none",
        deepspeed=deepspeed_json(settings, settings.batch.resolve(1)) if zero else None,
    )  # fmt: skip
    model = GPT2LMHeadModel(model_config(settings.model))
    Trainer(model, arguments, train_dataset=Samples(), callbacks=[_callback(turns)]).train()


def bare_loop(settings: PretrainConfig, turns: Turns) -> None:
    """A GPT-2 of one page, random pieces of the tokens, and the shortest loop."""
    import torch
    from torch import nn
    from torch.nn import functional

    shape, length, data = settings.model, settings.data.seq_length, tokens(settings)
    width, heads = shape.hidden_size, shape.num_attention_heads

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, s, _ = x.shape
            q, k, v = (part.view(b, s, heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, 2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, width)
            x = x + self.out(y)
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(shape.vocab_size, width), nn.Embedding(length, width)
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(shape.num_layers))), nn.LayerNorm(width)
            for weight in self.parameters():
                if weight.dim() > 1:
                    nn.init.normal_(weight, std=0.02)

        def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.blocks(self.words(ids) + self.places(torch.arange(ids.shape[1]))))
            return functional.cross_entropy((x @ self.words.weight.T).flatten(0, 1), labels.flatten())

    model = Gpt()
    wanted = settings.optimizer
    groups = [
        {"params": [p for p in model.parameters() if (p.dim() > 1) == matrix], "weight_decay": decay}
        for matrix, decay in ((True, wanted.weight_decay), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, wanted.lr.max, (wanted.beta1, wanted.beta2), fused=True)
    for step in range(END):
        starts = torch.randint(len(data) - length, (settings.batch.micro_size,)).tolist()
        ids = torch.stack([torch.from_numpy(data[at : at + length + 1]) for at in starts])
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), wanted.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % settings.engine.logging_freq == 0:
            loss.item()
        turns.step()


def tokens(settings: PretrainConfig) -> Any:
    return np.fromfile(f"{settings.data.input[0]}.bin", "<u2").astype(np.int64)


def run_side(side: str, file: Path, steps: int) -> None:
    settings, turns = config.load(PretrainConfig, file), Turns(steps)
    if side.startswith("ours"):
        ours(settings, turns)
    elif side.startswith("trainer"):
        bare_trainer(settings, turns, zero=side != "trainer")
    else:
        bare_loop(settings, turns)


@contextmanager
def started(side: str, folder: Path, settings: PretrainConfig, steps: int) -> Iterator[list["subprocess.Popen[str]"]]:
    """The processes of a side, behind their warm-up."""
    run = folder / side.replace(" ", "_")
    file = run.with_suffix(".yaml")
    run.mkdir()
    file.write_text(config.to_yaml(replace(settings, engine=replace(settings.engine, output_dir=run))))
    command = [sys.executable, "-m", "tests.bench.bench_training", "--side", side, str(file), "--steps", str(steps)]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen(command, env=environment(side, settings, rank) | place, **pipes)  # type: ignore[call-overload]
        for rank in range(SIDES[side])
    ]
    try:
        for process in processes:
            answer(process)
        yield processes
    finally:
        for process in processes:
            process.kill()


def environment(side: str, settings: PretrainConfig, rank: int) -> dict[str, str]:
    """Ours gets what the launcher gives a rank; the others get their threads only."""
    ranks = SIDES[side]
    given = os.environ | {"DS_ACCELERATOR": "cpu"}
    if "ours" in side:
        given = environment_of_ranks(settings, Nodes({HERE: ranks}))
    if ranks > 1 or "ours" in side or "ZeRO" in side:
        given |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_SIZE": str(ranks)}
    return given | {"OMP_NUM_THREADS": "1"}


def answer(process: "subprocess.Popen[str]") -> tuple[float, float]:
    """(seconds, CPU seconds) of the turn that a process has had."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("turn "):
            wall, cpu = map(float, line.split()[1:])
            return wall, cpu
    raise SystemExit("a side ended before its time")


def turn(processes: list["subprocess.Popen[str]"]) -> tuple[float, float]:
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    wall, cpu = zip(*map(answer, processes), strict=True)
    return max(wall), max(cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="in a turn")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of ours and of its JSON")
    parser.add_argument(
        "--only", action="append", choices=list(SIDES), metavar="SIDE", help="ours among them; repeatable"
    )
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run_side(options.side[0], Path(options.side[1]), options.steps)
        return
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        settings = config.load(PretrainConfig, CONFIG, [f"data.input=[{folder}/tokens]", "engine.eval_freq=0", "launch.ranks=null",
                                                        f"engine.save_steps={END}", *options.set])  # fmt: skip
        with IndexedWriter(folder / "tokens", dtype_for(settings.model.vocab_size)) as writer:
            ids = np.random.default_rng(0).integers(3, settings.model.vocab_size, 1_000_000, "<u2")
            writer.append(ids, np.full(2_000, 500))
        sides = {
            side: stack.enter_context(started(side, folder, settings, options.steps)) for side in options.only or SIDES
        }
        rounds = [{side: turn(processes) for side, processes in sides.items()} for _ in range(options.rounds)]
        report(rounds, options.steps, settings.batch.micro_size * settings.data.seq_length)
        train = [entry for entry in log.read(folder / "ours") if entry["kind"] == "train"][1:]
        print(
            f"reading: {median(entry['reader_cost'] / entry['batch_cost'] for entry in train):.2%} of a step (<= 3 %)"
        )


def report(rounds: list[dict[str, tuple[float, float]]], steps: int, tokens: int) -> None:
    """Other work on the machine lengthens a step, and hardly its CPU time: that ratio is the one to trust for a single rank."""
    for side in rounds[0]:
        step = median(times[side][0] for times in rounds) / steps
        wall, cpu = (median(times["ours"][clock] / times[side][clock] for times in rounds) for clock in (0, 1))
        print(f"{side:17} {step * 1e3:6.1f} ms a step, {tokens * SIDES[side] / step:6.0f} tokens/s", end="; ")
        print(f"ours / this: {wall:.3f}, of CPU time {cpu:.3f}")
    if "ours, 2 ranks" not in rounds[0]:
        return
    one, two = ([times[side][0] for times in rounds] for side in ("ours", "ours, 2 ranks"))
    ratio = median(a / b for a, b in zip(one, two, strict=True))
    print(
        f"two ranks: {ratio:.3f} x twice one (>= 0.93); quietest turns {min(one) / min(two):.3f}; needs two idle cores"
    )


if __name__ == "__main__":
    main()

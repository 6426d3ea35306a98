"""The script for one rank that trains small models, saves their states and loads them: `state_ranks.py OUT FROM:TO …`.

For each case, it loads the checkpoint OUT/CASE/FROM, or trains a few steps if FROM is `new`. Then it saves OUT/CASE/TO, the
weights of the forward pass in TO.pt, and in TO.json what comes next: random numbers, and the losses of two more steps.
"""

import itertools
import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.settings import config
from course_lib.training import extensions, state
from course_lib.training.deepspeed_config import deepspeed_json
from course_lib.training.parameter_groups import parameter_groups
from course_lib.training.settings import RunConfig
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
from deepspeed.ops.adam import DeepSpeedCPUAdam
from transformers.integrations import HfDeepSpeedConfig

SAMPLES, LENGTH, VOCABULARY = 4, 8, 61
EVERY = ("zero.stage3_param_persistence_threshold=0",)
OPTIMIZER, PARAMETERS = ("zero.offload_optimizer=true",), ("zero.offload_param=true",)
BF16, FP16 = (
    ("precision.dtype=bf16",),
    (
        "precision.dtype=fp16",
        "precision.initial_scale_power=18",
        "precision.hysteresis=1",
        "precision.loss_scale_window=2",
    ),
)


@dataclass(frozen=True)
class Case:
    stage: int
    overrides: tuple[str, ...] = ()
    frozen: bool = False
    steps: int = 2


CASES = {
    "0 fp32": Case(0),
    "0 bf16": Case(0, BF16, frozen=True),
    "1 fp32": Case(1),
    "1 bf16": Case(1, BF16),
    "1 bf16 offload": Case(1, BF16 + OPTIMIZER),
    "2 fp32": Case(2, frozen=True),
    "2 bf16": Case(2, BF16, frozen=True),
    "2 fp32 offload": Case(2, OPTIMIZER),
    "2 bf16 offload": Case(2, BF16 + OPTIMIZER),
    "2 fp16": Case(2, FP16, steps=6),
    "3 fp32": Case(3, EVERY, frozen=True),
    "3 fp32 persistent": Case(3),
    "3 bf16": Case(3, BF16 + EVERY),
    "3 bf16 persistent": Case(3, BF16, frozen=True),
    "3 bf16 offload": Case(3, BF16 + EVERY + OPTIMIZER + PARAMETERS, frozen=True),
    "3 fp32 offload": Case(3, EVERY + OPTIMIZER),
    "3 fp16": Case(3, FP16 + EVERY, steps=6),
    # Before the first step there are no moments.
    "1 bf16 first": Case(1, BF16, steps=0),
    "2 fp32 first": Case(2, steps=0),
    "3 fp32 first": Case(3, EVERY, steps=0),
}  # fmt: skip


class Rank:
    def __init__(self) -> None:
        self.number, self.ranks = dist.get_rank(), dist.get_world_size()
        self.first = self.number == 0

    def barrier(self) -> None:
        dist.barrier()


def settings(case: Case) -> RunConfig:
    values: dict[str, Any] = {
        "batch": {"global_size": SAMPLES, "micro_size": 1},
        "precision": {"dtype": "fp32"},
        "zero": {"stage": case.stage, "overlap_comm": False},
        "optimizer": {"weight_decay": 0.1},
    }
    return config.build(RunConfig, values, case.overrides)


@contextmanager
def sharded(chosen: RunConfig, ranks: int) -> Iterator[None]:
    if chosen.zero.stage < 3:
        yield
        return
    held = HfDeepSpeedConfig(deepspeed_json(chosen, chosen.batch.resolve(ranks)))
    yield
    del held


def build(case: Case, ranks: int) -> Any:
    """An engine with the attributes that state.py needs, and a function that takes a step."""
    chosen = settings(case)
    dtype = TORCH[chosen.precision.dtype]
    torch.manual_seed(1)
    with sharded(chosen, ranks):
        # Odd sizes, so that parameters and groups need padding.
        model = build_model(ModelConfig(
            vocab_size=VOCABULARY, hidden_size=33, num_layers=2, num_attention_heads=3, max_position_embeddings=LENGTH,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        ))  # fmt: skip
    if case.frozen:
        model.transformer.wpe.weight.requires_grad_(False)
        model.transformer.h[1].ln_1.bias.requires_grad_(False)
        model.register_buffer("marks", torch.arange(5))
    groups = parameter_groups(model, 0.1)
    if case.stage == 0:
        return plain(chosen, model, groups, dtype, ranks)
    kind: Any = DeepSpeedCPUAdam if chosen.zero.offload_optimizer else torch.optim.AdamW
    options = {} if chosen.zero.offload_optimizer else {"fused": True}
    made, optimizer, *_ = deepspeed.initialize(
        model=model,
        optimizer=kind(groups, lr=1e-2, **options),
        config=deepspeed_json(chosen, chosen.batch.resolve(ranks)),
        dist_init_required=False,
    )

    def step(number: int) -> float:
        total = 0.0
        for tokens in micro_batches(number, ranks):
            loss = made(input_ids=tokens, labels=tokens).loss
            made.backward(loss)
            made.step()
            total += loss.item() / SAMPLES
        return mean(total, 1)

    made.train()
    return SimpleNamespace(model=model, optimizer=optimizer, engine=made, scale=None, dtype=dtype, take=step)


def plain(chosen: RunConfig, model: Any, groups: Any, dtype: torch.dtype, ranks: int) -> Any:
    optimizer = torch.optim.AdamW(groups, lr=1e-2, fused=True)

    def step(number: int) -> float:
        total = 0.0
        for tokens in micro_batches(number, ranks):
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                loss = model(input_ids=tokens, labels=tokens).loss
            (loss / SAMPLES).backward()
            total += loss.item() / SAMPLES
        for parameter in model.parameters():
            if parameter.requires_grad:
                dist.all_reduce(parameter.grad)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return mean(total, 1)

    model.train()
    return SimpleNamespace(model=model, optimizer=optimizer, engine=None, scale=None, dtype=dtype, take=step)


def micro_batches(step: int, ranks: int) -> torch.Tensor:
    samples = torch.randint(VOCABULARY, (SAMPLES, 1, LENGTH), generator=torch.Generator().manual_seed(step))
    return samples[dist.get_rank() :: ranks]


def mean(total: float, by: int) -> float:
    value = torch.tensor(total, dtype=torch.float64)
    dist.all_reduce(value)
    return value.item() / by


def forward_weights(engine: Any) -> dict[str, torch.Tensor]:
    """The weights of the forward pass, in all ranks."""
    found = {}
    for name, parameter in engine.model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            found[name] = parameter.detach().clone()
    return found


def save_as_before(engine: Any, folder: Path, rank: Rank) -> None:
    """A checkpoint as an earlier version of the course wrote it, by the Trainer and DeepSpeed."""
    engine.save_checkpoint(folder)
    states = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    torch.save(states, folder / f"rng_state_{rank.number}.pth")


def main(out: Path, *pairs: str) -> None:
    extensions.skip_shared_memory()
    CPU_Accelerator.is_fp16_supported = lambda _: True
    deepspeed.init_distributed("gloo", verbose=False)
    rank = Rank()
    for (name, case), pair in itertools.product(CASES.items(), pairs):
        start, end = pair.split(":")
        if start == "deepspeed" and case.stage == 0:
            continue
        engine = build(case, rank.ranks)
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(rank.number)
        folder = out / name
        step = case.steps
        if start == "new":
            for number in range(step):
                engine.take(number)
        else:
            facts = state.load(engine, folder / start, rank)
            assert facts["step"] == step
        state.save(engine, folder / end, rank, {"step": step, "seconds": 1.5})
        if start == "new" and engine.engine:
            save_as_before(engine.engine, folder / "deepspeed", rank)
        forward = forward_weights(engine)
        if rank.first:
            torch.save(forward, folder / f"{end}.pt")
        draws: list[Any] = [None] * rank.ranks
        dist.all_gather_object(draws, [random.random(), np.random.random(), torch.rand(()).item()])
        losses = [engine.take(number) for number in (step, step + 1)]
        if rank.first:
            (folder / f"{end}.json").write_text(json.dumps({"losses": losses, "draws": draws}))
            print(name, losses, flush=True)
        if engine.engine:
            engine.engine.destroy()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)  # threads of the backends may abort an ordinary end

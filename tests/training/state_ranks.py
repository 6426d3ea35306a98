"""The script for one rank that trains small models, saves their states and loads them: `state_ranks.py OUT FROM:TO …`.

For each case, it loads the checkpoint OUT/CASE/FROM, or trains a few steps if FROM is `new`. Then it saves OUT/CASE/TO, the
weights of the forward pass in TO.pt, and in TO.json what comes next: random numbers, and the losses of two more steps.
"""

import itertools
import json
import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import engines, state
from course_lib.training.ranks import Rank, joined
from course_lib.training.settings import ResolvedBatch, RunConfig
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

SAMPLES, LENGTH, VOCABULARY = 4, 8, 61
EVERY = ("zero.stage3_param_persistence_threshold=0",)
OPTIMIZER, PARAMETERS = ("zero.offload_optimizer=true",), ("zero.offload_param=true",)
BF16 = ("precision.dtype=bf16",)
# The first steps overflow.
FP16 = (
    "precision.dtype=fp16",
    "precision.initial_scale_power=18",
    "precision.hysteresis=1",
    "precision.loss_scale_window=2",
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
    "0 fp16": Case(0, FP16, steps=6),
    "0 muon": Case(0, ("optimizer.name=muon",)),
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
}


def settings(case: Case) -> RunConfig:
    values: dict[str, Any] = {
        "batch": {"global_size": SAMPLES, "micro_size": 1},
        "precision": {"dtype": "fp32"},
        "zero": {"stage": case.stage},
        "optimizer": {"weight_decay": 0.1, "lr": {"max": 1e-2, "min": 1e-2}},
        "launch": {"device": "cpu"},
        "data": {"input": ["tokens"], "tokenizer": "tokenizer"},
    }
    return config.build(PretrainConfig, values, case.overrides)


def build(case: Case, chosen: RunConfig, batch: ResolvedBatch, rank: Rank) -> Any:
    """An engine with a GPT-2 of odd sizes, so that parameters and groups need padding."""
    torch.manual_seed(1)
    with engines.sharded_construction(chosen, batch, rank.ranks):
        model = build_model(ModelConfig(
            vocab_size=VOCABULARY, hidden_size=33, num_layers=2, num_attention_heads=3, max_position_embeddings=LENGTH,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        ))  # fmt: skip
    if case.frozen:
        model.transformer.wpe.weight.requires_grad_(False)
        model.transformer.h[1].ln_1.bias.requires_grad_(False)
        model.register_buffer("marks", torch.arange(5))
    run: Any = SimpleNamespace(settings=chosen)
    engine = engines.build(run, model, batch, rank)
    engine.train(True)
    return engine


def take(engine: Any, step: int, rank: Rank) -> float:
    """Take a step, and return its loss."""
    samples = torch.randint(VOCABULARY, (SAMPLES, 1, LENGTH), generator=torch.Generator().manual_seed(step))
    total = torch.zeros((), dtype=torch.float64)
    for tokens in samples[rank.number :: rank.ranks]:
        with engine.precision():
            loss = engine.module(input_ids=tokens, labels=tokens).loss
        loss = loss * (rank.ranks / SAMPLES)
        engine.backward(loss)
        total += loss.detach() / rank.ranks
    engine.step(1e-2)
    return rank.sum(total).item()


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


def one(folder: Path, case: Case, start: str, end: str, chosen: RunConfig, rank: Rank) -> None:
    engine = build(case, chosen, chosen.batch.resolve(rank.ranks), rank)
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(rank.number)
    step = case.steps
    if start == "new":
        for number in range(step):
            take(engine, number, rank)
    else:
        assert state.load(engine, folder / start, rank)["step"] == step
    state.save(engine, folder / end, rank, {"step": step, "seconds": 1.5})
    with_deepspeed = isinstance(engine, engines.DeepSpeedEngine)
    if start == "new" and with_deepspeed:
        save_as_before(engine.engine, folder / "deepspeed", rank)
    forward = forward_weights(engine)
    draws: list[Any] = [None] * rank.ranks
    draw = [random.random(), np.random.random(), torch.rand(()).item()]
    if rank.ranks > 1:
        dist.all_gather_object(draws, draw)
    else:
        draws = [draw]
    losses = [take(engine, number, rank) for number in (step, step + 1)]
    if rank.first:
        torch.save(forward, folder / f"{end}.pt")
        (folder / f"{end}.json").write_text(json.dumps({"losses": losses, "draws": draws}))
        print(folder.name, end, losses, flush=True)


def main(out: Path, *pairs: str) -> None:
    CPU_Accelerator.is_fp16_supported = lambda _: True
    ports = iter(os.environ["GROUP_PORTS"].split())
    for (name, case), pair in itertools.product(CASES.items(), pairs):
        start, end = pair.split(":")
        if start == "deepspeed" and case.stage == 0:
            continue
        chosen = settings(case)
        os.environ["MASTER_PORT"] = next(ports)
        with joined(chosen) as rank:
            one(out / name, case, start, end, chosen, rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)  # threads of the backends may abort an ordinary end

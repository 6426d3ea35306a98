"""A training step of a prefix (forward, backward, AdamW) against Hugging Face peft's on the same shape, by turns.

    OMP_NUM_THREADS=1 python -m tests.bench.bench_prefix [--rounds 15]

A GPT-NeoX of 12 layers of 768, 32 000 tokens, random weights, fp32, CPU time of one thread; 4 texts of 64 tokens; a prefix of 10. Ours with MLP (10, 10)
against peft with projection (10 inside), ours without against peft's embedding. Before timing, peft gets our prefix: both must find the same loss.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from course_lib.generation.prefix_cache import Shape
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.model import PrefixModel
from peft import PrefixTuningConfig, get_peft_model
from torch import Tensor, nn
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from tests.bench.timing import by_turns

LENGTH, INNER = 10, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = torch.randint(32_000, (4, 65), generator=torch.Generator().manual_seed(0))
    for name, mlp in (("mlp / projection", True), ("embedding", False)):
        ours, peer = mine(mlp), theirs(mlp)
        if not mlp:
            same_start(ours, peer, text)
        timed = by_turns(step(ours, text), step(peer, text), arguments.rounds, time.process_time)
        print(f"{name}: {timed[0] * 1e3:.0f} ms, peft {timed[1] * 1e3:.0f} ms: {timed[2]:.3f} ×")


def base() -> Any:
    torch.manual_seed(0)
    config = GPTNeoXConfig(vocab_size=32_000, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)  # fmt: skip
    return GPTNeoXForCausalLM(config).requires_grad_(False)


def mine(mlp: bool) -> nn.Module:
    model = base()
    return PrefixModel(model, PrefixEncoder(LENGTH, Shape.of(model.config).width, INNER, INNER, 0.0, mlp)).train()


def theirs(mlp: bool) -> Any:
    how = PrefixTuningConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=LENGTH, prefix_projection=mlp, encoder_hidden_size=INNER
    )
    return get_peft_model(base(), how).train()


def same_start(ours: Any, peer: Any, text: Tensor) -> None:
    """Gives peft our prefix, and ends the run if the two losses differ."""
    with torch.no_grad():
        peer.prompt_encoder["default"].embedding.weight.copy_(ours.encoder())
        found = [loss(model, text).item() for model in (ours, peer)]
    if abs(found[0] - found[1]) > 1e-4:
        raise SystemExit(f"ours and peft compute different losses: {found}")


def loss(model: nn.Module, text: Tensor) -> Tensor:
    found = model(text[:, :-1])
    logits = found if isinstance(found, Tensor) else found.logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def step(model: nn.Module, text: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)

    def run() -> None:
        optimizer.zero_grad()
        loss(model, text).backward()
        optimizer.step()

    return run


if __name__ == "__main__":
    main()

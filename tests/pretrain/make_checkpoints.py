"""Makes the checkpoints of test_export.py: run in two ranks, `make_checkpoints.py OUT ROWS`.

For each case OUT/NAME is a checkpoint as DeepSpeed writes it, and OUT/NAME.safetensors the weights that the engine itself reports:
the fp32 master weights, or at stage 0 the model's.
"""

import os
import sys
from pathlib import Path

import deepspeed
import torch
from course_lib.training import extensions
from deepspeed.utils import safe_get_full_fp32_param
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

CASES = ((0, "bf16"), (1, "fp32"), (2, "fp32"), (2, "bf16"), (3, "fp32"), (3, "bf16"))
STEPS = 2
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
SHAPE = ENDS | {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}


def settings(stage: int, dtype: str) -> dict[str, object]:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 100},
        "bf16": {"enabled": dtype == "bf16"},
    }


def parts(model: GPT2LMHeadModel) -> list[dict[str, object]]:
    """Two groups of parameters, as with weight decay for matrices only."""
    return [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]


def raw(out: Path, stage: int, dtype: str, rows: int) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=rows, **SHAPE))
    optimizer = torch.optim.AdamW(parts(model), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings(stage, dtype))
    rank = torch.distributed.get_rank()
    for step in range(STEPS):
        ids = torch.randint(0, rows, (2, 16), generator=torch.Generator().manual_seed(10 * step + rank))
        engine.backward(engine(ids, labels=ids).loss)
        engine.step()
    engine.save_checkpoint(out)
    truth = {n: (safe_get_full_fp32_param(p) if stage else p.detach()) for n, p in engine.module.named_parameters()}
    if rank == 0:
        save_file({n: t.clone().contiguous() for n, t in truth.items()}, out.with_suffix(".safetensors"))
    engine.destroy()


def main(out: Path, rows: int) -> None:
    extensions.skip_shared_memory()
    deepspeed.init_distributed("gloo")
    for stage, dtype in CASES:
        raw(out / f"{dtype}-{stage}", stage, dtype, rows)
    torch.distributed.barrier()
    os._exit(0)  # threads of the backends may abort an ordinary end


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

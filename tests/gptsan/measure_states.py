"""What DeepSpeed really holds of a GPTSAN whose base is frozen: as tests/pretrain/measure_states.py, whose measures these are.

Run by DeepSpeed's launcher (two ranks), prints a line `[[stage, dtype, bytes of this rank], …]` per rank.
"""

import json
import os
import sys

import deepspeed
import torch
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.freeze import decays, freeze, is_extra
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.training import stale_locks

from tests.training.measure_states import gradients, held, masters, states, weights

CASES = ((2, "bf16"), (3, "bf16"))


def measure(shape: dict[str, int], stage: int, dtype: str) -> dict[str, int]:
    torch.manual_seed(0)
    config = GPTSanConfig(**shape, separator_token_id=1, pad_token_id=1, eos_token_id=1)
    model = GPTSanForCausalLM(config)
    freeze(model, {name for name, _ in model.named_parameters() if not is_extra(name, config)})
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in named if decays(name)], "weight_decay": 0.1},
        {"params": [p for name, p in named if not decays(name)], "weight_decay": 0.0},
    ]
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {
            "stage": stage, "reduce_bucket_size": 100_000, "allgather_bucket_size": 100_000, "overlap_comm": False,
            "contiguous_gradients": True, "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 0,
        },
        "bf16": {"enabled": dtype == "bf16"},
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-3), config=settings)
    found = {}
    tokens = torch.arange(12)[None]
    for micro in range(2):
        engine.backward(engine(input_ids=tokens, labels=tokens, spout=torch.rand(1, config.d_spout)).loss)
        if micro == 0:
            found["gradients"] = held(gradients(engine))
        engine.step()
    found["weights"] = held(weights(engine))
    found["optimizer"] = held([*weights(engine), *masters(engine)]) - found["weights"] + held(states(engine))
    engine.destroy()
    return found


def main() -> None:
    deepspeed.init_distributed("gloo")
    stale_locks.unlink_shared_buffer()
    shape = json.loads(sys.argv[1])
    rows = [[stage, dtype, measure(shape, stage, dtype)] for stage, dtype in CASES]
    print(f"\nMEASURED {json.dumps(rows)}", flush=True)
    deepspeed.comm.barrier()
    os._exit(0)  # threads of the backends may abort an ordinary end


if __name__ == "__main__":
    main()

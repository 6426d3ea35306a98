"""What DeepSpeed really holds from stage 1 on: run in two ranks, prints a line `[[name, stage, dtype, bytes of this rank], …]` per rank.

The argument is JSON: a list of GPT-2 and GPT-NeoX settings, or the shape of one GPTSAN whose base is frozen.
Two micro batches make a step. Gradients are measured between them, the rest after the step: no temporary is alive then.
Nothing is asserted here; test_planner.py and tests/gptsan/test_memory.py compare the figures with the planner's.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import deepspeed
import torch
from course_lib.gptsan.freeze import is_extra
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.training import extensions
from course_lib.training.freezing import freeze
from course_lib.training.parameter_groups import parameter_groups

CASES = ((1, "fp32"), (1, "bf16"), (2, "fp32"), (2, "bf16"), (3, "fp32"), (3, "bf16"))
FROZEN_CASES = ((2, "bf16"), (3, "bf16"))


def bytes_of(tensors: Iterable[torch.Tensor | None]) -> int:
    """Bytes of the storages behind the tensors, each once."""
    storages = [t.untyped_storage() for t in tensors if t is not None]
    return sum({s.data_ptr(): s.nbytes() for s in storages if s.data_ptr()}.values())


def states(engine: deepspeed.DeepSpeedEngine) -> Iterator[torch.Tensor]:
    """The moments; the step counters (a number per group) left out."""
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    for state in optimizer.state.values():
        yield from (tensor for name, tensor in state.items() if name != "step")


def masters(engine: deepspeed.DeepSpeedEngine) -> list[torch.Tensor]:
    """The weights that the optimizer updates."""
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    found = getattr(engine.optimizer, "fp32_partitioned_groups_flat", None)
    return found or [p for group in optimizer.param_groups for p in group["params"]]


def weights(engine: deepspeed.DeepSpeedEngine) -> list[torch.Tensor]:
    """What the forward pass reads; stage 3: the rank's part, and the small parameters that stay whole."""
    params = list(engine.module.parameters())
    return params + [p.ds_tensor for p in params if hasattr(p, "ds_tensor")]


def gradients(engine: deepspeed.DeepSpeedEngine) -> Iterator[torch.Tensor | None]:
    """What stays from one micro-batch to the next."""
    yield from (p.grad for p in engine.module.parameters())
    yield getattr(engine.optimizer, "grad_partitions_flat_buffer", None)
    for group in getattr(engine.optimizer, "all_grad_tensors", {}).values():
        yield from group or ()


def gpt(shape: ModelConfig) -> tuple[Any, dict[str, torch.Tensor]]:
    """A model with random weights, and the arguments of a forward pass."""
    torch.manual_seed(0)
    tokens = torch.arange(shape.max_position_embeddings)[None] % shape.vocab_size
    return build_model(shape), {"input_ids": tokens}


def gptsan(shape: dict[str, int]) -> tuple[Any, dict[str, torch.Tensor]]:
    """A GPTSAN of which only the extra stage and the spout are trained, and the arguments of a forward pass."""
    torch.manual_seed(0)
    config = GPTSanConfig(**shape, separator_token_id=1, pad_token_id=1, eos_token_id=1)
    model = GPTSanForCausalLM(config)
    freeze(model, {name for name, _ in model.named_parameters() if not is_extra(name, config)})
    tokens = torch.arange(12)[None]
    return model, {"input_ids": tokens, "spout": torch.rand(1, config.d_spout)}


def measure(model: Any, inputs: dict[str, torch.Tensor], stage: int, dtype: str) -> dict[str, int]:
    """Bytes of this rank's weights, gradients and optimizer states."""
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {
            "stage": stage, "reduce_bucket_size": 100_000, "allgather_bucket_size": 100_000, "overlap_comm": False,
            "contiguous_gradients": True, "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 0,
        },
        "bf16": {"enabled": dtype == "bf16"},
    }  # fmt: skip
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    found = {}
    for micro in range(2):
        logits = engine(**inputs).logits.float()
        engine.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1), inputs["input_ids"].flatten()))
        if micro == 0:
            found["gradients"] = bytes_of(gradients(engine))
        engine.step()
    found["weights"] = bytes_of(weights(engine))
    master_bytes = (
        bytes_of([*weights(engine), *masters(engine)]) - found["weights"]
    )  # 0 where both are the same tensors
    found["optimizer"] = master_bytes + bytes_of(states(engine))
    engine.destroy()
    return found


def main() -> None:
    extensions.skip_shared_memory()
    deepspeed.init_distributed("gloo")
    wanted = json.loads(sys.argv[1])
    if isinstance(wanted, dict):
        rows = [["gptsan", *case, measure(*gptsan(wanted), *case)] for case in FROZEN_CASES]
    else:
        shapes = [ModelConfig(**shape) for shape in wanted]
        rows = [[shape.architecture, *case, measure(*gpt(shape), *case)] for shape in shapes for case in CASES]
    print(f"\nMEASURED {json.dumps(rows)}", flush=True)
    deepspeed.comm.barrier()
    os._exit(0)  # threads of the backends may abort an ordinary end


if __name__ == "__main__":
    main()

"""The DeepSpeed configuration, generated from the settings for a run.

Every key has an explicit value, and no key is deprecated or set to 'auto'. Keys: deepspeed.ai/docs/config-json. The
optimizer and the learning-rate schedule are created in trainer.py, so the configuration has no sections for them.
"""

from dataclasses import asdict
from typing import Any

from course_lib.training.settings import ResolvedBatch, RunConfig, ZeroConfig


def deepspeed_json(settings: RunConfig, batch: ResolvedBatch) -> dict[str, Any]:
    """Return the content of deepspeed.json, which is also passed to `deepspeed.initialize`."""
    precision, clip = settings.precision, settings.optimizer.grad_clip
    content: dict[str, Any] = {
        "train_batch_size": batch.total,
        "train_micro_batch_size_per_gpu": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "gradient_clipping": clip,
        # in practice, never: trainer.py writes the log
        "steps_per_print": 1 << 31,
        "wall_clock_breakdown": settings.engine.wall_clock_breakdown,
        "zero_optimization": _zero(settings.zero),
    }
    if precision.dtype == "bf16":
        content["bf16"] = {"enabled": True}
    if precision.dtype == "fp16":
        scale = asdict(precision)
        del scale["dtype"]
        content["fp16"] = {"enabled": True} | scale
    return content


def _zero(zero: ZeroConfig) -> dict[str, Any]:
    """Return the section `zero_optimization`, whose keys are those of the settings except for offload."""
    offload = {"device": "cpu", "pin_memory": zero.pin_memory}
    values = {key: value for key, value in asdict(zero).items() if key != "pin_memory" and "offload" not in key}
    content = {key: value for key, value in values.items() if not key.startswith("stage3")}
    if zero.offload_optimizer:
        content["offload_optimizer"] = offload
    if zero.stage == 3:
        # The export reads the shards instead.
        content |= values | {"stage3_gather_16bit_weights_on_model_save": False}
        if zero.offload_param:
            content["offload_param"] = offload
    return content

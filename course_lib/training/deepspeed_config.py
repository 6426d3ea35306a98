"""The DeepSpeed configuration, generated from the settings for a run.

Every key has an explicit value, and no key is deprecated or set to 'auto'. Keys: deepspeed.ai/docs/config-json. The
optimizer and the learning-rate schedule are those of engines.py and loop.py, so the configuration has no such sections.
"""

from dataclasses import asdict
from typing import Any

from course_lib.errors import UsageError
from course_lib.training.settings import ResolvedBatch, RunConfig, ZeroConfig


def deepspeed_json(settings: RunConfig, batch: ResolvedBatch) -> dict[str, Any]:
    """Return the content of deepspeed.json, which is also passed to `deepspeed.initialize`."""
    precision, clip = settings.precision, settings.optimizer.grad_clip
    content: dict[str, Any] = {
        "train_batch_size": batch.total,
        "train_micro_batch_size_per_gpu": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "gradient_clipping": clip,
        # in practice, never: loop.py writes the log
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


def with_optimizer(content: dict[str, Any], settings: RunConfig, steps: int) -> dict[str, Any]:
    """Return the content of deepspeed.json with sections for optimizer and scheduler, as `transformers.Trainer` reads.

    The rate must fall linearly to 0, and weight decay, which DeepSpeed applies to all weights alike, must be 0.
    DeepSpeed's scheduler gives the first two updates the same rate, unless it begins at update 1 and the first rate is
    in the optimizer (deepspeed/runtime/lr_schedules.py). The Trainer requires that a highest rate named here is that of
    the optimizer, so it is not named: DeepSpeed's default is 1e-3.
    """
    wanted, warmup = settings.optimizer, round(settings.optimizer.lr.warmup(steps))
    rate = wanted.lr
    if (rate.max, rate.min, rate.decay, wanted.weight_decay) != (1e-3, 0, "linear", 0) or warmup < 2:
        raise UsageError(
            "optimizer: not what DeepSpeed's scheduler does; allowed: lr.max 1e-3, lr.min 0, lr.decay linear, a "
            "warm-up of at least 2 steps and weight_decay 0"
        )
    adamw = {"lr": rate.max / warmup, "betas": [wanted.beta1, wanted.beta2], "eps": wanted.epsilon}
    schedule = {
        "warmup_min_lr": 0,
        "warmup_num_steps": warmup,
        "warmup_type": "linear",
        "total_num_steps": steps,
        "last_batch_iteration": 1,
    }
    return content | {
        "optimizer": {"type": "AdamW", "params": adamw | {"weight_decay": 0, "torch_adam": True}},
        "scheduler": {"type": "WarmupDecayLR", "params": schedule},
    }

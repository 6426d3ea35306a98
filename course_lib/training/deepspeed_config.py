"""The DeepSpeed configuration, generated from the settings for a run.

Every key has an explicit value, and no key is deprecated or set to 'auto'. Keys: deepspeed.ai/docs/config-json. The
optimizer and the learning-rate schedule are created in trainer.py, so the configuration has no sections for them.
"""

from typing import Any

from course_lib.training.settings import ResolvedBatch, RunConfig


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
        "zero_optimization": _zero(settings),
    }
    if precision.dtype == "bf16":
        content["bf16"] = {"enabled": True}
    if precision.dtype == "fp16":
        content["fp16"] = {
            "enabled": True,
            "loss_scale": precision.loss_scale,
            "initial_scale_power": precision.initial_scale_power,
            "loss_scale_window": precision.loss_scale_window,
            "hysteresis": precision.hysteresis,
            "min_loss_scale": precision.min_loss_scale,
        }
    return content


def _zero(settings: RunConfig) -> dict[str, Any]:
    zero = settings.zero
    content: dict[str, Any] = {
        "stage": zero.stage,
        "reduce_bucket_size": zero.reduce_bucket_size,
        "allgather_bucket_size": zero.allgather_bucket_size,
        "overlap_comm": zero.overlap_comm,
        "contiguous_gradients": zero.contiguous_gradients,
        "reduce_scatter": zero.reduce_scatter,
        "allgather_partitions": zero.allgather_partitions,
    }
    if zero.offload_optimizer:
        content["offload_optimizer"] = {"device": "cpu", "pin_memory": zero.pin_memory}
    if zero.stage == 3:
        content |= {
            "stage3_prefetch_bucket_size": zero.stage3_prefetch_bucket_size,
            "stage3_param_persistence_threshold": zero.stage3_param_persistence_threshold,
            "stage3_max_live_parameters": zero.stage3_max_live_parameters,
            # The export reads the shards instead.
            "stage3_gather_16bit_weights_on_model_save": False,
        }
        if zero.offload_param:
            content["offload_param"] = {"device": "cpu", "pin_memory": zero.pin_memory}
    return content

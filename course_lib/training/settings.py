"""Settings that every run has, whatever it trains: batch, optimizer, precision, ZeRO, loop, launch.

FleetX, Megatron-DeepSpeed and DeepSpeed name the same things otherwise: configs/README.md has the table.
"""

from dataclasses import field
from pathlib import Path
from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting
from course_lib.errors import UsageError
from course_lib.models.memory import Sizes


@dataclass(frozen=True)
class ResolvedBatch:
    """Batch sizes for a number of ranks [samples]."""

    total: int  # per step, all ranks
    local: int  # per step and rank
    micro: int  # per forward pass
    accumulation: int  # forward passes per step


@dataclass(frozen=True, config=STRICT)
class BatchConfig:
    """Batch sizes in samples. global_size = local_size · ranks, local_size = micro_size · accumulation."""

    global_size: int | None = setting(None, "samples per step over all ranks; unset: follows from local_size", ge=1)
    local_size: int | None = setting(
        None, "samples per step and rank; unset: follows from global_size, else micro_size", ge=1
    )
    micro_size: int = setting(8, "samples per forward pass and rank", ge=1)

    def resolve(self, ranks: int) -> ResolvedBatch:
        """The sizes for `ranks` data-parallel ranks. Raises UsageError naming the sizes that do not go together."""
        local = self.local_size or (self.global_size // ranks if self.global_size else self.micro_size)
        total = self.global_size or local * ranks
        if total != local * ranks:
            raise UsageError(
                f"batch.global_size: {total} is not allowed: must be batch.local_size · ranks = {local} · {ranks} = {local * ranks}"
            )
        if local % self.micro_size:
            raise UsageError(
                f"batch.micro_size: {self.micro_size} is not allowed: must divide the local batch ({local})"
            )
        return ResolvedBatch(total, local, self.micro_size, local // self.micro_size)


@dataclass(frozen=True, config=STRICT)
class RateConfig:
    """Learning rate: linear warm-up to `max`, half a cosine or a line down to `min`, then constant."""

    max: float = setting(5e-5, "highest rate, at the end of the warm-up", gt=0, le=1)
    min: float = setting(1e-5, "rate after decay_steps", ge=0, le=1)
    warmup_rate: float = setting(0.01, "share of decay_steps spent warming up", ge=0, lt=1)
    warmup_steps: int | None = setting(None, "warm-up [steps]; stands above warmup_rate", ge=0)
    decay_steps: int | None = setting(None, "step at which `min` is reached; unset: the last step", ge=1)
    decay: Literal["cosine", "linear"] = setting("cosine", "the way down from `max` to `min`")

    @model_validator(mode="after")
    def _order(self) -> "RateConfig":
        if self.max < self.min:
            raise ValueError(
                f"optimizer.lr.max: {self.max} is not allowed: below optimizer.lr.min ({self.min}), the rate would rise; are they swapped?"
            )
        return self

    def warmup(self, last_step: int) -> float:
        """Length of the warm-up of a run of `last_step` steps [steps]. Raises ValueError when it is longer than the decay."""
        decay = self.decay_steps or last_step
        warmup = self.warmup_rate * decay if self.warmup_steps is None else self.warmup_steps
        if warmup > decay:
            end = "optimizer.lr.decay_steps" if self.decay_steps else "the last step"
            raise ValueError(
                f"optimizer.lr.warmup_steps: {warmup} is not allowed: must not exceed the {decay} steps up to {end}"
            )
        return warmup


@dataclass(frozen=True, config=STRICT)
class OptimizerConfig:
    """AdamW. Biases and norms are not decayed."""

    weight_decay: float = setting(0.01, "decoupled weight decay", ge=0, le=1)
    beta1: float = setting(0.9, "decay of the first moment", ge=0, lt=1)
    beta2: float = setting(0.999, "decay of the second moment", ge=0, lt=1)
    epsilon: float = setting(1e-8, "added to the root of the second moment", gt=0, le=1)
    grad_clip: float = setting(1.0, "largest gradient norm over all parameters; 0 = no clipping", ge=0)
    fused: bool = setting(True, "the device's fused kernel, where there is one")
    lr: RateConfig = field(default_factory=RateConfig)


@dataclass(frozen=True, config=STRICT)
class PrecisionConfig:
    """Number formats. fp16 keeps its loss in range by a scale, bf16 needs none."""

    dtype: Literal["fp32", "bf16", "fp16"] = setting(
        "bf16", "format of weights and activations; the optimizer keeps fp32"
    )
    loss_scale: float = setting(0.0, "fp16: fixed factor of the loss; 0 = found while training", ge=0)
    initial_scale_power: int = setting(16, "fp16: the search begins at 2 to this power", ge=0, le=32)
    loss_scale_window: int = setting(1000, "fp16: steps without overflow before the scale doubles", ge=1)
    hysteresis: int = setting(2, "fp16: overflows tolerated before the scale halves", ge=1)
    min_loss_scale: float = setting(1.0, "fp16: lowest scale", gt=0)


@dataclass(frozen=True, config=STRICT)
class ZeroConfig:
    """What DeepSpeed shards over the ranks (ZeRO, arXiv:1910.02054) and what it moves to host memory."""

    stage: int = setting(2, "0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters", ge=0, le=3)
    offload_optimizer: bool = setting(
        False, "optimizer states and step in host memory (needs a C++ compiler at first use)"
    )
    offload_param: bool = setting(False, "parameters in host memory (stage 3)")
    pin_memory: bool = setting(True, "page-locked host memory for what is offloaded (GPU)")
    reduce_bucket_size: int = setting(200_000_000, "gradients reduced at a time [elements]", ge=1)
    allgather_bucket_size: int = setting(200_000_000, "parameters gathered at a time [elements]", ge=1)
    overlap_comm: bool = setting(True, "reduce gradients while the backward pass goes on (GPU)")
    contiguous_gradients: bool = setting(True, "copy gradients into one buffer, against fragmentation")
    reduce_scatter: bool = setting(True, "reduce each gradient to its owner only")
    allgather_partitions: bool = setting(True, "collect updated parameters by all-gather, not by broadcasts")
    stage3_prefetch_bucket_size: int = setting(50_000_000, "stage 3: parameters fetched ahead [elements]", ge=0)
    stage3_param_persistence_threshold: int = setting(
        100_000, "stage 3: smaller parameters are not sharded [elements]", ge=0
    )
    stage3_max_live_parameters: int = setting(1_000_000_000, "stage 3: parameters held at a time [elements]", ge=1)

    @model_validator(mode="after")
    def _offload(self) -> "ZeroConfig":
        if self.offload_param and self.stage != 3:
            raise ValueError(f"zero.offload_param: True is not allowed: needs zero.stage 3, not {self.stage}")
        if self.offload_optimizer and self.stage == 0:
            raise ValueError("zero.offload_optimizer: True is not allowed: needs zero.stage 1, 2 or 3, not 0")
        return self


@dataclass(frozen=True, config=STRICT)
class EngineConfig:
    """The loop: how long, what is said, what is saved."""

    output_dir: Path = setting(Path("output"), "folder of the run: checkpoints, log, configuration, model")
    max_steps: int | None = setting(
        None, "optimizer steps; at most one of max_steps, num_train_epochs, data.train_tokens", ge=1
    )
    num_train_epochs: float | None = setting(None, "passes over the training tokens", gt=0)
    logging_freq: int = setting(10, "a log line every so many steps", ge=1)
    eval_freq: int = setting(500, "evaluate every so many steps; 0 = never", ge=0)
    eval_iters: int = setting(10, "global batches of the validation set per evaluation", ge=1)
    test_iters: int | None = setting(
        None, "global batches of the test set at the end; unset: 10 · eval_iters; 0 = none", ge=0
    )
    save_steps: int = setting(1000, "a checkpoint every so many steps; one more at the end", ge=1)
    keep_checkpoints: int | None = setting(2, "how many of the latest stay; unset: all", ge=1)
    seed: int = setting(1024, "of initial weights, sample order and dropout", ge=0, lt=1 << 32)
    compile: bool = setting(False, "torch.compile")
    tracking: tuple[Literal["tensorboard", "wandb"], ...] = setting(
        ("tensorboard",), "where the curves go, besides log.jsonl"
    )
    wandb_project: str = setting("japanese-lm-course", "wandb: project; offline unless WANDB_MODE says otherwise")
    peak_tflops: float | None = setting(
        None, "peak of one device in this format [TFLOP/s], for FLOPs utilisation; unset: known cards", gt=0
    )
    wall_clock_breakdown: bool = setting(
        False, "DeepSpeed's own times of forward, backward and step in the run's output"
    )


@dataclass(frozen=True, config=STRICT)
class LaunchConfig:
    """Where the ranks run: DeepSpeed's launcher and hostfile."""

    ranks: int | None = setting(None, "processes on this node; unset: one per GPU, or 1", ge=1, le=1024)
    device: Literal["auto", "cpu"] = setting("auto", "auto: GPUs where there are any; cpu: CPU ranks in any case")
    hostfile: Path | None = setting(None, "DeepSpeed hostfile, lines `name slots=8`; unset: this node alone")
    master_addr: str = setting("", "address the nodes find the first one by; unset: found by the launcher")
    master_port: int = setting(0, "port of the first node; 0 = a free one", ge=0, lt=1 << 16)
    threads: int | None = setting(None, "CPU threads per rank; unset: cores / ranks", ge=1, le=1024)


@dataclass(frozen=True, config=STRICT)
class RunConfig:
    """The sections that the settings of every run have. A kind of run adds those of its model and its data."""

    batch: BatchConfig = field(default_factory=BatchConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    zero: ZeroConfig = field(default_factory=ZeroConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)

    @model_validator(mode="after")
    def _length(self) -> "RunConfig":
        given = [key for key, value in self.lengths().items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{', '.join(given)}: set together, but each says how long to train; allowed: at most one")
        rate = self.optimizer.lr
        if last := rate.decay_steps or self.engine.max_steps:
            rate.warmup(last)
        return self

    def lengths(self) -> dict[str, float | None]:
        """The settings that say how long to train, by dotted key; at most one is set."""
        return {"engine.max_steps": self.engine.max_steps, "engine.num_train_epochs": self.engine.num_train_epochs}

    def sizes(self) -> Sizes:
        """What the memory of the run depends on besides these sections."""
        raise NotImplementedError(f"{type(self).__name__} says nothing of its model's memory")

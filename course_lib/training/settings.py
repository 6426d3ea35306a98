"""Settings common to all kinds of runs: batch, optimizer, precision, ZeRO, engine and launch.

FleetX, Megatron-DeepSpeed and DeepSpeed use other names for the same settings; see the table in configs/README.md.
"""

from collections.abc import Iterable
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator
from pydantic.dataclasses import dataclass

from course_lib.checkpoints.number_formats import NumberFormat, of_processor
from course_lib.errors import UsageError
from course_lib.settings.config import STRICT, Section, flat, setting, to_dict


@dataclass(frozen=True)
class ResolvedBatch:
    """Batch sizes for a given number of ranks [samples]."""

    total: int  # per step, over all ranks
    local: int  # per step and rank
    micro: int  # per forward pass
    accumulation: int  # forward passes per step


@dataclass(frozen=True, config=STRICT)
class BatchConfig:
    """Batch sizes [samples]: global_size = local_size · ranks, local_size = micro_size · accumulation steps."""

    global_size: int | None = setting(None, "samples per step over all ranks; unset: local_size · ranks", ge=1)
    local_size: int | None = setting(None, "samples per step and rank; unset: global_size / ranks or micro_size", ge=1)
    micro_size: int = setting(8, "samples per forward pass and rank", ge=1)

    def resolve(self, ranks: int) -> ResolvedBatch:
        """Return the batch sizes for `ranks` data-parallel ranks. Raises UsageError if they do not divide evenly."""
        local = self.local_size or (self.global_size // ranks if self.global_size else self.micro_size)
        total = self.global_size or local * ranks
        if total != local * ranks:
            raise UsageError(
                f"batch.global_size: {total} is not allowed: must be batch.local_size · ranks = {local} · {ranks} = "
                f"{local * ranks}"
            )
        if local % self.micro_size:
            raise UsageError(
                f"batch.micro_size: {self.micro_size} is not allowed: must divide the local batch ({local})"
            )
        return ResolvedBatch(total, local, self.micro_size, local // self.micro_size)


@dataclass(frozen=True, config=STRICT)
class RateConfig:
    """Learning-rate schedule: linear warm-up to `max`, decay to `min` in one of three shapes, then constant.

    The trapezoid stays at `max` up to its final linear decay (Hägele et al. 2024, https://arxiv.org/abs/2405.18392).
    """

    max: float = setting(5e-5, "highest learning rate, reached at the end of the warm-up", gt=0, le=1)
    min: float = setting(1e-5, "learning rate after decay_steps", ge=0, le=1)
    warmup_rate: float = setting(0.01, "length of the warm-up as a fraction of decay_steps", ge=0, lt=1)
    warmup_steps: int | None = setting(None, "length of the warm-up [steps]; overrides warmup_rate", ge=0)
    decay_steps: int | None = setting(None, "step at which `min` is reached; unset: the last step", ge=1)
    decay: Literal["cosine", "linear", "trapezoid"] = setting("cosine", "shape of the decay from `max` to `min`")
    decay_rate: float = setting(
        0.75, "trapezoid: length of the final linear decay as a fraction of decay_steps", gt=0, le=1
    )

    @model_validator(mode="after")
    def _order(self) -> "RateConfig":
        if self.max < self.min:
            raise ValueError(
                f"optimizer.lr.max: {self.max} is not allowed: below optimizer.lr.min ({self.min}), "
                "the rate would rise; are they swapped?"
            )
        if self.warmup_steps is None:
            self._require_warmup_before_decay(self.warmup_rate)
        return self

    def warmup(self, last_step: int) -> float:
        """Return the length of the warm-up [steps]. Raises ValueError if it is longer than the decay."""
        decay = self.decay_steps or last_step
        warmup = self.warmup_rate * decay if self.warmup_steps is None else self.warmup_steps
        if warmup > decay:
            end = "optimizer.lr.decay_steps" if self.decay_steps else "the last step"
            raise ValueError(
                f"optimizer.lr.warmup_steps: {warmup} is not allowed: must not exceed the {decay} steps up to {end}"
            )
        self._require_warmup_before_decay(warmup / decay)
        return warmup

    def _require_warmup_before_decay(self, warmup: float) -> None:
        """Raise ValueError if a trapezoid would begin to fall before the end of the warm-up, a share of its length."""
        # The tolerance is for shares such as 0.1 and 0.9.
        if self.decay == "trapezoid" and warmup + self.decay_rate > 1 + 1e-9:
            raise ValueError(
                f"optimizer.lr.decay_rate: {self.decay_rate} is not allowed: the warm-up takes {warmup:.3g} of the "
                "length; together at most 1"
            )


@dataclass(frozen=True, config=STRICT)
class MuonConfig:
    """Settings for Muon, which updates the matrices of the blocks; AdamW updates the rest (muon.py)."""

    lr: float = setting(0.02, "highest learning rate of the matrices; optimizer.lr is that of the rest", gt=0, le=1)
    momentum: float = setting(0.95, "decay rate of the momentum", ge=0, lt=1)
    weight_decay: float = setting(0.1, "decoupled weight decay of the matrices", ge=0, le=1)
    # Matrices of one shape are updated together, up to this many elements, which limits the temporary memory.
    elements_together: ClassVar[int] = 1 << 26

    def together(self, elements: int) -> int:
        """Return how many matrices of a number of elements are updated together."""
        return max(1, self.elements_together // elements)


@dataclass(frozen=True, config=STRICT)
class OptimizerConfig:
    """Settings for AdamW and Muon. AdamW does not apply weight decay to biases or normalization weights."""

    name: Literal["adamw", "muon"] = setting(
        "adamw", "adamw: AdamW for all weights; muon: Muon for the matrices of a GPT-2's blocks, AdamW for the rest"
    )
    weight_decay: float = setting(0.01, "decoupled weight decay", ge=0, le=1)
    beta1: float = setting(0.9, "decay rate of the first moment", ge=0, lt=1)
    beta2: float = setting(0.999, "decay rate of the second moment", ge=0, lt=1)
    epsilon: float = setting(1e-8, "added to the square root of the second moment", gt=0, le=1)
    grad_clip: float = setting(1.0, "largest gradient norm over all parameters; 0 = no clipping", ge=0)
    fused: bool = setting(True, "use the device's fused AdamW kernel, if there is one")
    lr: RateConfig = field(default_factory=RateConfig)
    muon: MuonConfig = field(default_factory=MuonConfig)


@dataclass(frozen=True, config=STRICT)
class PrecisionConfig:
    """Settings for the data type. fp16 needs a loss scale to keep gradients in range; bf16 does not."""

    dtype: NumberFormat = setting(
        "bf16",
        "format of matrix products; optimizer states and the weights that they update are fp32; auto: bf16 on a "
        "processor with instructions for it, else fp32",
    )
    loss_scale: float = setting(0.0, "fp16: fixed scale of the loss; 0 = dynamic", ge=0)
    initial_scale_power: int = setting(16, "fp16: exponent (base 2) of the first dynamic scale", ge=0, le=32)
    loss_scale_window: int = setting(1000, "fp16: steps without overflow before the scale doubles", ge=1)
    hysteresis: int = setting(2, "fp16: overflows tolerated before the scale halves", ge=1)
    min_loss_scale: float = setting(1.0, "fp16: smallest scale", gt=0)

    @field_validator("dtype", mode="before")
    @classmethod
    def _auto(cls, value: Any) -> Any:
        return of_processor() if value == "auto" else value


@dataclass(frozen=True, config=STRICT)
class ZeroConfig:
    """Settings for ZeRO (arXiv:1910.02054): what DeepSpeed shards across ranks and moves to host memory."""

    stage: int = setting(
        2, "what several ranks shard: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters", ge=0, le=3
    )
    offload_optimizer: bool = setting(False, "keep optimizer states in host memory, and run the step on the CPU")
    offload_param: bool = setting(False, "keep parameters in host memory (stage 3)")
    pin_memory: bool = setting(True, "use page-locked host memory for offload (GPU)")
    reduce_bucket_size: int = setting(200_000_000, "gradients reduced at a time [elements]", ge=1)
    allgather_bucket_size: int = setting(200_000_000, "parameters gathered at a time [elements]", ge=1)
    overlap_comm: bool = setting(True, "reduce gradients during the backward pass (GPU)")
    contiguous_gradients: bool = setting(True, "copy gradients into one buffer, to avoid fragmentation")
    reduce_scatter: bool = setting(True, "reduce each gradient only to the rank that owns it")
    allgather_partitions: bool = setting(True, "collect updated parameters by all-gather instead of broadcasts")
    stage3_prefetch_bucket_size: int = setting(50_000_000, "stage 3: parameters fetched in advance [elements]", ge=0)
    stage3_param_persistence_threshold: int = setting(100_000, "stage 3: smaller ones are not sharded [elements]", ge=0)
    stage3_max_live_parameters: int = setting(1_000_000_000, "stage 3: most unsharded parameters [elements]", ge=1)

    @model_validator(mode="after")
    def _offload(self) -> "ZeroConfig":
        if self.offload_param and self.stage != 3:
            raise ValueError(f"zero.offload_param: True is not allowed: needs zero.stage 3, not {self.stage}")
        if self.offload_optimizer and self.stage == 0:
            raise ValueError("zero.offload_optimizer: True is not allowed: needs zero.stage 1, 2 or 3, not 0")
        return self


@dataclass(frozen=True, config=STRICT)
class EngineConfig:
    """Settings for the training loop: length, logging, evaluation and checkpoints."""

    output_dir: Path = setting(Path("output"), "folder of the run: checkpoints, log, configuration, model")
    max_steps: int | None = setting(None, "optimizer steps; excludes num_train_epochs and data.train_tokens", ge=1)
    num_train_epochs: float | None = setting(None, "passes over the training tokens", gt=0)
    max_seconds: float | None = setting(
        None, "training time on one rank [s], without compilation and evaluation; excludes the other lengths", gt=0
    )
    logging_freq: int = setting(10, "interval of log lines [steps]", ge=1)
    eval_freq: int = setting(500, "interval of evaluations [steps]; 0 = never", ge=0)
    eval_iters: int = setting(10, "global batches of the validation set per evaluation", ge=1)
    test_iters: int | None = setting(None, "global batches of the test set at the end; unset: 10 · eval_iters", ge=0)
    save_steps: int = setting(1000, "interval of checkpoints [steps]; one more is saved at the end", ge=1)
    keep_checkpoints: int | None = setting(2, "number of latest checkpoints to keep; unset: all", ge=1)
    seed: int = setting(1024, "seed of initial weights, sample order and dropout", ge=0, lt=1 << 32)
    compile: bool = setting(False, "compile the model with its loss by torch.compile")
    tracking: tuple[Literal["tensorboard", "wandb"], ...] = setting(("tensorboard",), "trackers beside log.jsonl")
    peak_tflops: float | None = setting(None, "peak of one device [TFLOP/s]; unset: that of known cards", gt=0)
    wall_clock_breakdown: bool = setting(False, "DeepSpeed's times of forward, backward and step in output.txt")


@dataclass(frozen=True, config=STRICT)
class SlurmConfig:
    """What a Slurm job asks for, in the script that --print-sbatch writes. A run takes its nodes from its job."""

    nodes: int = setting(1, "nodes", ge=1)
    cpus_per_rank: int = setting(8, "CPU cores per rank", ge=1)
    time: str = setting("1-00:00:00", "time limit per job, [days-]h:mm:ss", pattern=r"^(\d+-)?\d+:\d\d:\d\d$")
    memory: str = setting("", "memory per node, such as 900G; unset: the cluster's default")
    partition: str = setting("", "partition; unset: the cluster's default")
    account: str = setting("", "account; unset: the user's default")


@dataclass(frozen=True, config=STRICT)
class LaunchConfig:
    """Settings for the ranks: how many there are, and where they run."""

    ranks: int | None = setting(None, "processes per node; unset: one per GPU, or 1", ge=1, le=1024)
    device: Literal["auto", "cpu"] = setting("auto", "auto: GPUs if there are any; cpu: always CPU ranks")
    hostfile: Path | None = setting(None, "DeepSpeed hostfile with lines `name slots=8`; unset: only this node")
    master_addr: str = setting("", "address of the first node, for several; unset: that which it or Slurm tells")
    master_port: int = setting(0, "port of the first node for its ranks; 0 = a free one", ge=0, lt=1 << 16)
    threads: int | None = setting(
        None, "CPU threads per rank; unset: cores / ranks, or 1 for a small model on one rank", ge=1, le=1024
    )
    slurm: SlurmConfig = field(default_factory=SlurmConfig)


@dataclass(frozen=True, config=STRICT)
class RunConfig:
    """Settings common to all kinds of runs. Each kind adds groups of keys for its model and data."""

    kind: str = setting("", "kind of run; each kind has its own class of settings, with its name as the default")
    batch: BatchConfig = field(default_factory=BatchConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    zero: ZeroConfig = field(default_factory=ZeroConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)

    @model_validator(mode="after")
    def _length(self) -> "RunConfig":
        lengths = [key for key, value in self.lengths().items() if value is not None]
        if len(lengths) > 1:
            raise ValueError(f"{', '.join(lengths)}: set together, but each is a training length; allowed: at most one")
        rate = self.optimizer.lr
        if last := rate.decay_steps or self.engine.max_steps:
            rate.warmup(last)
        if self.engine.max_seconds is not None:
            for key in ("warmup_steps", "decay_steps"):
                if (value := getattr(rate, key)) is not None:
                    raise ValueError(
                        f"optimizer.lr.{key}: {value} is not allowed: with engine.max_seconds, the rate follows the "
                        "share of time; allowed: optimizer.lr.warmup_rate"
                    )
        return self

    @model_validator(mode="after")
    def _muon(self) -> "RunConfig":
        if self.optimizer.name == "muon":
            if not self.can_use_muon():
                raise ValueError(
                    "optimizer.name: muon is not allowed: Muon trains only a GPT-2 (`course pretrain` with "
                    "model.architecture gpt2); allowed: adamw"
                )
            for key in ("offload_optimizer", "offload_param"):
                if getattr(self.zero, key):
                    raise ValueError(f"zero.{key}: True is not allowed with optimizer.name muon; allowed: False")
        if problem := self.problem_with_ranks(self.launch.ranks or 1):
            raise ValueError(problem)
        return self

    def lengths(self) -> dict[str, float | None]:
        """Return the settings that determine the training length, by dotted key. At most one of them may be set."""
        engine = self.engine
        return {
            "engine.max_steps": engine.max_steps,
            "engine.num_train_epochs": engine.num_train_epochs,
            "engine.max_seconds": engine.max_seconds,
        }

    def can_use_muon(self) -> bool:
        """Return whether muon.py knows the matrices of the model, which a kind of run says whose model is a GPT-2."""
        return False

    def problem_with_ranks(self, ranks: int) -> str | None:
        """Return why the run cannot train on a number of ranks, as one line, or None if it can."""
        if ranks > 1 and self.optimizer.name == "muon":
            return f"optimizer.name: muon is not allowed on {ranks} ranks: it needs launch.ranks=1; allowed: adamw"
        if ranks > 1 and self.engine.max_seconds is not None:
            return (
                f"engine.max_seconds: {self.engine.max_seconds:g} is not allowed on {ranks} ranks: it needs "
                "launch.ranks=1; allowed: engine.max_steps"
            )
        return None

    def uses_deepspeed(self, ranks: int) -> bool:
        """Return whether DeepSpeed trains the run: ZeRO shards states over several ranks, or offloads them."""
        zero = self.zero
        return zero.stage > 0 and (ranks > 1 or zero.offload_optimizer or zero.offload_param)

    def identity(self) -> dict[str, Any]:
        """Return the settings that fix the weights after each step, by dotted key, without batch and length.

        Files and folders are no part of it: their contents are facts about the run's inputs. Logging, evaluation,
        launch, micro-batch, recomputation and kernels may change when a run is resumed.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what fixes its weights")

    def content(self) -> dict[str, Any]:
        """Return the settings that fix the weights at the end of a run, by dotted key: identity, batch and length."""
        local = self.batch.local_size or self.batch.micro_size
        if self.batch.global_size:
            batch = {"batch.global_size": self.batch.global_size}
        elif self.launch.ranks:
            batch = {"batch.global_size": local * self.launch.ranks}
        else:
            # The number of ranks is that of the GPUs, which no setting says.
            batch = {"batch.local_size": local}
        content = self.identity() | batch | self.lengths()
        if self.zero.stage == 3 and self.launch.ranks != 1:
            # Weights that are sharded while they are initialized are drawn in another order.
            content["zero.stage"] = 3
        return content

    def chosen(self, **names: Iterable[str]) -> dict[str, Any]:
        """Return values by dotted key: chosen(engine=["seed"], loss=["z_loss"]) → {"engine.seed": 1024, …}."""
        values, found = to_dict(self), {}
        for section, keys in names.items():
            found[section] = {key: values[section][key] for key in keys}
        return flat(found)

    def sizes(self, autocast: bool = False) -> Any:
        """Return what the memory planner needs to know of the model, `Sizes` of memory.py. Each kind overrides this.

        With `autocast`, trained weights are in fp32 and cast for matrix products; otherwise all are in the run's dtype.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define its model's memory")


def absolute(settings: Any) -> Any:
    """Return the settings with absolute paths, because ranks on other nodes start in another folder."""
    changes: dict[str, Any] = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if is_dataclass(value):
            changes[each.name] = absolute(value)
        elif isinstance(value, Path):
            changes[each.name] = value.absolute()
        elif isinstance(value, tuple) and any(isinstance(item, Path) for item in value):
            changes[each.name] = tuple(item.absolute() for item in value)
    return replace(settings, **changes)


@dataclass(frozen=True, config=STRICT)
class RunsConfig:
    """The `training.runs` section of a profile."""

    folder: Path | None = setting(None, "folder for runs, such as one on a mounted drive; used if its parent exists")


# The section of a profile for runs of all chapters.
RUNS_SECTION = Section("training.runs", RunsConfig)

"""What computes a step: plain PyTorch, or DeepSpeed's engine where ZeRO shards or offloads something.

With one rank and no offload, and in stage 0, ZeRO has nothing to shard or move, so DeepSpeed only costs time: its
import alone takes seconds. Both engines have the same methods, which loop.py calls.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import UsageError
from course_lib.training.deepspeed_config import deepspeed_json
from course_lib.training.loss_scale import LossScale
from course_lib.training.muon import muon
from course_lib.training.parameter_groups import parameter_groups
from course_lib.training.ranks import Rank
from course_lib.training.run import Run
from course_lib.training.settings import OptimizerConfig, ResolvedBatch, RunConfig


class Engine(Protocol):
    """What loop.py calls."""

    model: nn.Module
    module: nn.Module  # what the loss calls: the model, or DeepSpeed's engine around it
    optimizer: torch.optim.Optimizer  # its state is by parameter; with DeepSpeed, by flat shards
    scale: LossScale | None  # the loss scale of PlainEngine in fp16
    dtype: torch.dtype  # of the run
    compiles_loss: bool  # whether the loss, and so the model in it, is compiled

    def precision(self) -> AbstractContextManager[Any]:
        """Return a context in which the module computes in the run's dtype."""

    def train(self, mode: bool) -> None:
        """Set the training mode of the module."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those of the step's earlier micro-batches."""

    def step(self, rate: float) -> Tensor | float | None:
        """Update the weights with the mean gradient of all ranks; return its norm before clipping.

        A step is skipped and has no norm if its gradients are too large for fp16.
        """

    def fp16_facts(self) -> dict[str, float]:
        """Return the loss scale and the number of skipped steps for the log, or {} if the run is not in fp16."""


def build(run: Run, model: nn.Module, batch: ResolvedBatch, rank: Rank) -> Engine:
    """Return the engine for a run, which takes over the model."""
    if run.settings.uses_deepspeed(rank.ranks):
        return DeepSpeedEngine(run, model, batch)
    return PlainEngine(run, model, rank)


def require_units(dtype: NumberFormat, device: torch.device) -> None:
    """Raise UsageError if a GPU would only emulate the run's dtype, which is slow."""
    if device.type == "cuda" and dtype == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UsageError(
            f"precision.dtype: bf16 is not allowed: {torch.cuda.get_device_name(device)} has no units for it; "
            "allowed: fp16, fp32"
        )


class PlainEngine:
    """Trained weights, gradients and moments in fp32; the forward pass computes in the run's dtype by autocast."""

    def __init__(self, run: Run, model: nn.Module, rank: Rank) -> None:
        settings: RunConfig = run.settings
        self.rank = rank
        self.model = self.module = model.to(rank.device)
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in self.trained:
            parameter.data = parameter.data.float()
        self.dtype = TORCH[settings.precision.dtype]
        wanted = settings.optimizer
        self.optimizer = muon(model, wanted, self.dtype) if wanted.name == "muon" else adamw(model, wanted)
        self.clip = wanted.grad_clip or float("inf")
        self.scale = LossScale(settings.precision) if self.dtype == torch.float16 else None
        self.compiles_loss = settings.engine.compile

    def precision(self) -> AbstractContextManager[Any]:
        """Return a context in which the module computes in the run's dtype."""
        return torch.autocast(self.rank.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def train(self, mode: bool) -> None:
        """Set the training mode of the module."""
        self.model.train(mode)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those of the step's earlier micro-batches."""
        if self.scale:
            loss = loss * self.scale.value
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, rate: float) -> Tensor | None:
        """Update the weights with the mean gradient of all ranks; return its norm before clipping."""
        factor = self.rank.ranks * (self.scale.value if self.scale else 1.0)
        for parameter in self.trained:
            # Experts that no token was sent to have no gradient; AdamW still decays them and their moments.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if factor != 1.0:
                parameter.grad = self.rank.sum(parameter.grad).div_(factor)
        norm = nn.utils.clip_grad_norm_(self.trained, self.clip)
        # Only fp16 waits for the device here.
        overflows = self.scale is not None and not torch.isfinite(norm)
        if not overflows:
            for group in self.optimizer.param_groups:
                # Muon's groups have other rates.
                group["lr"] = rate * group.get("relative_lr", 1.0)
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.scale:
            self.scale.update(overflows)
        return None if overflows else norm

    def fp16_facts(self) -> dict[str, float]:
        """Return the loss scale and the number of skipped steps for the log, or {} if the run is not in fp16."""
        return {"loss_scale": self.scale.value, "skipped_steps": self.scale.skipped} if self.scale else {}


class DeepSpeedEngine:
    """DeepSpeed's engine: ZeRO shards the states over the ranks, and offload keeps them in host memory."""

    scale: LossScale | None = None
    # DeepSpeed compiles its engine itself.
    compiles_loss = False

    def __init__(self, run: Run, model: nn.Module, batch: ResolvedBatch) -> None:
        import deepspeed

        settings: RunConfig = run.settings
        self.settings, self.model = settings, model
        self.dtype = TORCH[settings.precision.dtype]
        of_host = cpu_adamw(model, settings.optimizer) if settings.zero.offload_optimizer else None
        self.engine, self.optimizer, *_ = deepspeed.initialize(
            model=model,
            optimizer=of_host or adamw(model, settings.optimizer),
            config=deepspeed_json(settings, batch),
            dist_init_required=False,
        )
        self.module = self.engine
        if settings.engine.compile:
            self.engine.compile()

    def precision(self) -> AbstractContextManager[Any]:
        """Return an empty context: DeepSpeed has cast the weights."""
        return nullcontext()

    def train(self, mode: bool) -> None:
        """Set the training mode of the module."""
        self.engine.train(mode)
        # DeepSpeed sets only that of the model, and GPTSAN's loss asks what it is given.
        self.engine.training = mode

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those of the step's earlier micro-batches."""
        self.engine.backward(loss, scale_wrt_gas=False)
        # DeepSpeed counts the micro-batches, and updates the weights after the last one.
        if not self.engine.is_gradient_accumulation_boundary():
            self.engine.step()

    def step(self, rate: float) -> Tensor | float | None:
        """Update the weights with the mean gradient of all ranks; return its norm before clipping."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        skipped = self.engine.skipped_steps
        self.engine.step()
        norm: Tensor | float | None = self.engine.get_global_grad_norm()
        return None if self.engine.skipped_steps > skipped else norm

    def fp16_facts(self) -> dict[str, float]:
        """Return the loss scale and the number of skipped steps for the log, or {} if the run is not in fp16."""
        if self.settings.precision.dtype != "fp16":
            return {}
        return {"loss_scale": float(self.engine.optimizer.loss_scale), "skipped_steps": self.engine.skipped_steps}


def adamw(model: nn.Module, wanted: OptimizerConfig) -> torch.optim.Optimizer:
    """Return AdamW for the trained parameters of a model."""
    groups = parameter_groups(model, wanted.weight_decay)
    betas = wanted.beta1, wanted.beta2
    return torch.optim.AdamW(groups, wanted.lr.max, betas, wanted.epsilon, fused=wanted.fused)


def cpu_adamw(model: nn.Module, wanted: OptimizerConfig) -> torch.optim.Optimizer:
    """Return DeepSpeed's AdamW for states in host memory, which it compiles when it is first used."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    groups = parameter_groups(model, wanted.weight_decay)
    betas = wanted.beta1, wanted.beta2
    optimizer: torch.optim.Optimizer = DeepSpeedCPUAdam(
        groups, wanted.lr.max, betas=betas, eps=wanted.epsilon, adamw_mode=True
    )
    return optimizer


@contextmanager
def sharded_construction(settings: RunConfig, batch: ResolvedBatch, ranks: int) -> Iterator[None]:
    """Under ZeRO stage 3, make transformers shard each weight while it builds a model in the block."""
    if settings.zero.stage < 3 or not settings.uses_deepspeed(ranks):
        yield
        return
    from transformers.integrations import HfDeepSpeedConfig

    # transformers looks for this object, as long as it exists, whenever it builds a model.
    deepspeed_config = HfDeepSpeedConfig(deepspeed_json(settings, batch))
    yield
    del deepspeed_config

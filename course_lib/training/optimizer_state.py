"""Reading and writing weights and optimizer states by parameter, in plain PyTorch and under ZeRO.

DeepSpeed keeps the fp32 weights and the moments of a rank in flat tensors, one for each group of parameters. Its public
functions read and write them by parameter (deepspeed.readthedocs.io/en/latest/zero3.html, "Debugging"). They leave
gaps, which are closed here: the moments do not exist before the first step, the number of updates belongs to no
parameter, the last part of a parameter is padded in stage 3, and the forward pass has a copy of the weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from course_lib.checkpoints.state_files import WEIGHT
from course_lib.training.engines import DeepSpeedEngine, Engine

STEP = "step"


class OptimizerState(Protocol):
    """Weights and optimizer states by parameter. A kind is `weight` or a key of the optimizer's state."""

    def updates(self) -> int:
        """Return the number of updates so far."""

    def kinds(self, parameter: Tensor) -> list[str]:
        """Return the kinds of a trained parameter's optimizer states; before the first update there are none."""

    def reading(self) -> Any:
        """Return a context in which `read` may be called."""

    def read(self, value: Tensor, kind: str) -> Tensor:
        """Return a tensor of a parameter or buffer as a whole. All ranks call this together."""

    def writing(self, kinds: Sequence[str], updates: int) -> Any:
        """Return a context in which `write` may be called, for an optimizer that has done `updates` updates."""

    def write(self, value: Tensor, kind: str, whole: Tensor) -> None:
        """Set a tensor of a parameter or buffer. `whole` has its shape, is on the CPU and may be memory-mapped."""


def of(engine: Engine) -> OptimizerState:
    """Return access to the state of an engine."""
    if not isinstance(engine, DeepSpeedEngine):
        return PlainState(engine.optimizer)
    deepspeed = engine.engine
    if deepspeed.zero_optimization_stage() == 3:
        return Stage3State(deepspeed, deepspeed.optimizer.fp16_groups, deepspeed.optimizer.fp32_partitioned_groups_flat)
    zero = deepspeed.optimizer
    # In bf16, stage 1 has another class.
    groups = zero.bf16_groups if hasattr(zero, "bf16_groups") else zero.bit16_groups
    return Stages1And2State(deepspeed, groups, [group["params"][0] for group in zero.optimizer.param_groups])


def _count(optimizer: torch.optim.Optimizer, parameter: Tensor, updates: int) -> Any:
    """Return the number of updates as the optimizer keeps it in the state of a parameter."""
    if not isinstance(optimizer, torch.optim.AdamW):
        # DeepSpeed's AdamW for the CPU
        return updates
    settings = optimizer.param_groups[0]
    device = parameter.device if settings["fused"] or settings["capturable"] else "cpu"
    return torch.tensor(float(updates), device=device)


def _updates(states: Any) -> int:
    return max((int(state[STEP]) for state in states if STEP in state), default=0)


class PlainState:
    """The state of a torch optimizer, which has whole tensors by parameter."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def updates(self) -> int:
        """Return the number of updates so far."""
        return _updates(self.optimizer.state.values())

    def kinds(self, parameter: Tensor) -> list[str]:
        """Return the kinds of a trained parameter's optimizer states; before the first update there are none."""
        state = self.optimizer.state.get(parameter, {})
        return [kind for kind, value in state.items() if isinstance(value, Tensor) and kind != STEP]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context in which `read` may be called."""
        yield

    def read(self, value: Tensor, kind: str) -> Tensor:
        """Return a tensor of a parameter or buffer."""
        if kind == WEIGHT:
            return value.detach()
        state: Tensor = self.optimizer.state[value][kind]
        return state

    @contextmanager
    def writing(self, kinds: Sequence[str], updates: int) -> Iterator[None]:
        """Return a context in which `write` may be called, for an optimizer that has done `updates` updates."""
        self.steps = updates
        yield

    def write(self, value: Tensor, kind: str, whole: Tensor) -> None:
        """Set a tensor of a parameter or buffer."""
        if kind == WEIGHT:
            value.copy_(whole)
            return
        state = self.optimizer.state[value]
        state[kind] = torch.empty_like(value).copy_(whole)
        if kind == "exp_avg":
            state[STEP] = _count(self.optimizer, value, self.steps)


class Stages1And2State:
    """The state of DeepSpeed's optimizer in ZeRO stages 1 and 2.

    `groups` are the trained parameters by group, and `flats` the rank's part of each group's fp32 weights.
    """

    def __init__(self, engine: Any, groups: list[list[Tensor]], flats: list[Tensor]) -> None:
        self.zero, self.optimizer = engine.optimizer, engine.optimizer.optimizer
        self.groups, self.flats = groups, flats

    def updates(self) -> int:
        """Return the number of updates so far."""
        return _updates(self.optimizer.state.values())

    def kinds(self, parameter: Tensor) -> list[str]:
        """Return the kinds of a trained parameter's optimizer states; before the first update there are none."""
        state = self.optimizer.state.get(self.flats[0], {})
        return [kind for kind, value in state.items() if isinstance(value, Tensor) and kind != STEP]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context in which `read` may be called."""
        self._link()
        yield

    def read(self, value: Tensor, kind: str) -> Tensor:
        """Return a tensor of a parameter or buffer as a whole. All ranks call this together."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if not value.requires_grad:
            return value
        whole: Tensor | None
        whole = safe_get_full_fp32_param(value) if kind == WEIGHT else safe_get_full_optimizer_state(value, kind)
        assert whole is not None
        return whole

    @contextmanager
    def writing(self, kinds: Sequence[str], updates: int) -> Iterator[None]:
        """Return a context in which `write` may be called, for an optimizer that has done `updates` updates."""
        self._create(kinds, updates)
        self._link()
        yield
        # The weights of the forward pass are those of fp32, rounded.
        self.zero.update_lp_params()

    def _link(self) -> None:
        """Tell DeepSpeed's functions where the moments of a parameter are.

        DeepSpeed 0.19.8 does so for all groups when it has updated the first one, so the others have no moments yet.
        """
        from deepspeed.utils import lazy_init_hp_params_optimizer_state

        if not self.optimizer.state.get(self.flats[0]):
            return
        for parameters, flat in zip(self.groups, self.flats, strict=True):
            lazy_init_hp_params_optimizer_state(parameters, flat, self.optimizer.state)

    def _create(self, kinds: Sequence[str], updates: int) -> None:
        """Give the optimizer its states, full of zeros, which it otherwise creates in its first step."""
        if not kinds:
            return
        for flat in self.flats:
            state = self.optimizer.state[flat]
            state[STEP] = _count(self.optimizer, flat, updates)
            for kind in kinds:
                state[kind] = torch.zeros_like(flat, requires_grad=False)

    def write(self, value: Tensor, kind: str, whole: Tensor) -> None:
        """Set a tensor of a parameter or buffer."""
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        if not value.requires_grad:
            value.copy_(whole)
        elif kind == WEIGHT:
            safe_set_full_fp32_param(value, whole)
        else:
            safe_set_full_optimizer_state(value, whole, kind)


class Stage3State(Stages1And2State):
    """The state of DeepSpeed's optimizer in ZeRO stage 3, where each rank has a part of every parameter."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context in which `read` may be called."""
        # Small parameters are whole in each rank: they are released first, and gathered again at the end.
        self.zero.checkpoint_event_prologue()
        yield
        self.zero.checkpoint_event_epilogue()

    def read(self, value: Tensor, kind: str) -> Tensor:
        """Return a tensor of a parameter or buffer as a whole. All ranks call this together."""
        import deepspeed

        if value.requires_grad or not hasattr(value, "ds_id"):
            return super().read(value, kind)
        with deepspeed.zero.GatheredParameters([value]):
            return value.detach().clone()

    @contextmanager
    def writing(self, kinds: Sequence[str], updates: int) -> Iterator[None]:
        """Return a context in which `write` may be called, for an optimizer that has done `updates` updates."""
        self._create(kinds, updates)
        with self.reading():
            yield

    def write(self, value: Tensor, kind: str, whole: Tensor) -> None:
        """Set a tensor of a parameter or buffer: this rank's part of it."""
        from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

        shard = getattr(value, "ds_tensor", None)
        if shard is None:
            value.copy_(whole)
            return
        part = self._part(whole, shard.numel())
        if kind != WEIGHT:
            safe_set_local_optimizer_state(value, part, kind)
            return
        # the weights of the forward pass
        shard.data.copy_(part)
        if value.requires_grad:
            safe_set_local_fp32_param(value, part)

    def _part(self, whole: Tensor, size: int) -> Tensor:
        """Return this rank's part of a tensor, padded with zeros to `size` elements."""
        from deepspeed import comm

        rank = comm.get_rank(group=self.zero.dp_process_group)
        part = whole.flatten()[rank * size : (rank + 1) * size]
        return torch.nn.functional.pad(part, (0, size - part.numel()))

"""Memory and work of a training run, worked out before it starts. No torch, no advice: planner.py compares and advises.

What a model is made of is the `sizes` of its run's settings; the rest holds for every model.
States (weights, gradients, optimizer) are what DeepSpeed 0.19 allocates, to the byte: tests/training/test_planner.py holds them against
a run of two ranks. Activations and logits are formulas, held against PyTorch's allocations; buffers and allowance are on the safe side.
Not counted: torch.compile, the workspace inside a kernel, evaluation.
"""

from dataclasses import dataclass
from typing import Any

from course_lib.models.memory import BYTES, Sizes
from course_lib.training.settings import RunConfig

GB = 1_000_000_000
MASTER, MOMENTS = 4, 8  # bytes a parameter: the fp32 weights that AdamW updates, its two fp32 moments
STAGE0_BUCKET = 500_000_000  # gradients DeepSpeed sums at a time without ZeRO [elements]
CONTEXT = GB  # CUDA context, NCCL, cuBLAS
FRAGMENTATION = 0.05  # of everything else: blocks that the caching allocator cannot fill


@dataclass(frozen=True)
class Plan:
    """Bytes of one rank at its peak."""

    settings: Any  # those of a run: a RunConfig with its model and data
    ranks: int
    parts: dict[str, int]  # on the GPU: weights, gradients, optimizer, activations, logits, buffers, allowance
    host: int  # in host memory, by offload

    @property
    def total(self) -> int:
        """Of the GPU [bytes]."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in self.parts.items() if size >= GB / 20)
        host = f"; {self.host / GB:.1f} GB of host memory for each" if self.host else ""
        return f"{self.total / GB:.1f} GB per GPU on {self.ranks} ({parts}){host}"


def plan(settings: RunConfig, ranks: int | None = None) -> Plan:
    """The memory of one of `ranks` data-parallel GPUs; unset: launch.ranks, or 1."""
    ranks = ranks or settings.launch.ranks or 1
    model = settings.sizes()
    states, host = _states(settings, model, ranks)
    backward, step = _temporaries(settings, model, ranks)
    backward += max(0, model.block - model.logits)  # a block is computed again when the logits are gone
    after = max(0, step - backward - model.activations - model.logits)  # the step comes when the activations are gone
    parts = states | {"activations": model.activations, "logits": model.logits, "buffers": backward + after}
    parts["allowance"] = CONTEXT + int(FRAGMENTATION * sum(parts.values()))
    return Plan(settings, ranks, parts, host)


def _states(settings: RunConfig, model: Sizes, ranks: int) -> tuple[dict[str, int], int]:
    """Weights, gradients (as kept between micro batches) and optimizer states [bytes], and what lies in host memory.

    ZeRO (arXiv:1910.02054): 2Ψ + 2Ψ + 12Ψ bytes for Ψ parameters, of which stages 1, 2, 3 shard the last, two, three. DeepSpeed adds:
    at 1 and 2, padding of two flat groups (decayed or not) to 2·ranks; from 1 on, an fp32 copy of the weights even in fp32 training;
    at 2, the whole gradient of a parameter that the end of a slice cuts; at 3, padding of each parameter, and the small ones whole.
    A frozen parameter is its weight alone, which stage 3 shards too.
    """
    zero, width = settings.zero, BYTES[settings.precision.dtype]
    own, frozen, host = [elements for elements, _ in model.trained], sum(model.frozen), 0
    if zero.stage == 0:
        weights, gradients = width * (sum(own) + frozen), width * sum(own)
        optimizer = (MOMENTS + (MASTER if width < 4 else 0)) * sum(own)
    elif zero.stage < 3:
        groups = _groups(model, ranks)
        shard = sum(share for _, share in groups)
        weights, optimizer = width * (shard * ranks + frozen), (MASTER + MOMENTS) * shard
        gradients = width * (_touched(groups, ranks) if zero.stage == 2 else sum(own))
        if zero.offload_optimizer:  # with fp32 gradients, the weights on their way back, and sums of micro batches
            copies = 2 if _accumulates(settings, ranks) else 1
            host = optimizer + (4 + copies * width) * shard + width * max(own)
            optimizer, gradients = 0, gradients if zero.stage == 1 else 0
    else:
        shard, still = (sum(-(-size // ranks) for size in part) for part in (own, model.frozen))
        small = [size for size in (*own, *model.frozen) if size <= zero.stage3_param_persistence_threshold]
        whole = width * ranks * sum(-(-size // ranks) for size in small)
        weights, gradients, optimizer = width * (shard + still) + whole, width * shard, (MASTER + MOMENTS) * shard
        if zero.offload_optimizer:
            host, gradients, optimizer = optimizer + gradients + 4 * shard, 0, 0
        if zero.offload_param:
            host, weights = host + width * (shard + still), whole
    return {"weights": weights, "gradients": gradients, "optimizer": optimizer}, host


def _groups(model: Sizes, ranks: int) -> list[tuple[list[int], int]]:
    """The flat groups of stages 1 and 2, decayed or not: their parameters, and a rank's share [elements]."""
    groups = [[size for size, decayed in model.trained if decayed == wanted] for wanted in (True, False)]
    return [(sizes, -(-sum(sizes) // (2 * ranks)) * 2) for sizes in groups]


def _touched(groups: list[tuple[list[int], int]], ranks: int) -> int:
    """Elements of all parameters of which a rank owns some, on the rank with the most."""
    counts = [0] * ranks
    for sizes, share in groups:
        begin = 0
        for size in sizes:
            for rank in range(begin // share, -(-(begin + size) // share)):
                counts[rank] += size
            begin += size
    return max(counts)


def _temporaries(settings: RunConfig, model: Sizes, ranks: int) -> tuple[int, int]:
    """What communication holds in the backward pass, and what the step holds [bytes]."""
    zero, width = settings.zero, BYTES[settings.precision.dtype]
    own = [elements for elements, _ in model.trained]
    total, largest = sum(own), max(own)
    shard = -(-total // ranks)
    if zero.stage == 0:
        return width * min(STAGE0_BUCKET, total), 0 if width == 4 else 4 * total
    update = 4 + (
        width if settings.optimizer.fused else MOMENTS
    )  # fp32 gradients; their source, or temporaries of AdamW
    step = 0 if zero.offload_optimizer else max(update * shard, 8 * largest)  # the norm takes each gradient to fp64
    bucket = width * zero.reduce_bucket_size
    if zero.stage == 3:
        return 2 * bucket + width * min(zero.stage3_max_live_parameters, model.parameters), step
    buffers = bucket * (1 + zero.overlap_comm) if zero.contiguous_gradients else 0
    buffers += width * min(zero.reduce_bucket_size, total)  # the copy that is sent
    if zero.offload_optimizer:
        return buffers + width * largest, step
    beside = zero.stage == 1 or _accumulates(settings, ranks)  # this micro batch's gradients, beside the sum so far
    return buffers + beside * width * shard, step


def _accumulates(settings: RunConfig, ranks: int) -> bool:
    batch = settings.batch
    return (batch.local_size or (batch.global_size or 0) // ranks) > batch.micro_size

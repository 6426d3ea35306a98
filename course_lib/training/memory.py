"""Memory for a training run, computed before it starts and without torch. planner.py compares plans.

States (weights, gradients, optimizer) are exactly what PlainEngine and DeepSpeed 0.19 allocate, activations, casts and
logits what PyTorch allocates (tests/training/test_planner.py). Buffers and allowance are upper estimates. Not included:
torch.compile, temporary memory inside a kernel, evaluation.
"""

from dataclasses import dataclass
from typing import Any

from course_lib.checkpoints.number_formats import BYTES
from course_lib.language.words import mark, tr
from course_lib.models.memory import Sizes
from course_lib.training.settings import RunConfig

GB = 1_000_000_000
# bytes per parameter: the fp32 weights that AdamW updates, and its two fp32 moments
MASTER, MOMENTS = 4, 8
# bytes per element of a gradient, and of Muon's one moment
FP32 = 4
# CUDA context, NCCL and cuBLAS [bytes]
CONTEXT = GB
# memory that the caching allocator cannot use, as a fraction of everything else
FRAGMENTATION = 0.05


@dataclass(frozen=True)
class Plan:
    """The peak memory of one rank [bytes]."""

    settings: Any  # a RunConfig with model and data
    ranks: int
    parts: dict[str, int]  # on the GPU: weights, gradients, optimizer, activations, logits, buffers, allowance
    host: int  # host memory used by offload

    @property
    def total(self) -> int:
        """Peak GPU memory [bytes]."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{tr(name)} {size / GB:.1f}" for name, size in self.parts.items() if size >= GB / 20)
        host = tr("; {size:.1f} GB of host memory for each", size=self.host / GB) if self.host else ""
        sizes = {"total": self.total / GB, "ranks": self.ranks, "parts": parts, "host": host}
        return tr("{total:.1f} GB per GPU on {ranks} ({parts}){host}", **sizes)


def plan(settings: RunConfig, ranks: int | None = None) -> Plan:
    """Plan the peak memory of one of `ranks` data-parallel ranks; None means launch.ranks, or 1 if that is unset."""
    ranks = ranks or settings.launch.ranks or 1
    sharded = settings.uses_deepspeed(ranks)
    # DeepSpeed casts the whole model to 16 bits; otherwise autocast casts weights and activations.
    autocast = not sharded and settings.precision.dtype != "fp32"
    model = settings.sizes(autocast)
    if sharded:
        states, host = _sharded_states(settings, model, ranks)
        backward, step = _sharded_temporaries(settings, model, ranks)
    else:
        states, host = _states(settings, model, ranks), 0
        backward, step = model.casts, _update(settings, model, ranks)
    # A block is recomputed after the logits are freed, so the two share memory.
    backward += max(0, model.block - model.logits)
    # The optimizer step comes after the activations and logits are freed, so it shares their memory.
    after = max(0, step - backward - model.activations - model.logits)
    parts = states | {
        mark("activations"): model.activations,
        mark("logits"): model.logits,
        mark("buffers"): backward + after,
    }
    parts[mark("allowance")] = CONTEXT + int(FRAGMENTATION * sum(parts.values()))
    return Plan(settings, ranks, parts, host)


def _states(settings: RunConfig, model: Sizes, ranks: int) -> dict[str, int]:
    """Return the memory for weights, gradients and optimizer states of a run without DeepSpeed [bytes].

    Trained weights and their gradients are in fp32. Gradients are those kept between micro-batches: in a step of one
    micro-batch, they come as the activations go (see `_update`).
    """
    own = sum(elements for elements, _ in model.trained)
    optimizer = MOMENTS * own
    if settings.optimizer.name == "muon":
        optimizer -= FP32 * sum(map(sum, model.matrices))
    return {
        mark("weights"): MASTER * own + BYTES[settings.precision.dtype] * sum(model.frozen),
        mark("gradients"): FP32 * own * _accumulates(settings, ranks),
        mark("optimizer"): optimizer,
    }


def _update(settings: RunConfig, model: Sizes, ranks: int) -> int:
    """Return the memory needed from the end of the backward pass to that of the optimizer step [bytes].

    It holds the gradients, unless they are kept in any case, and what is larger: the parts that the gradient of the
    largest parameter is added up from, or the temporaries of the optimizer.
    """
    own, accumulates = [elements for elements, _ in model.trained], _accumulates(settings, ranks)
    # The embedding gets a gradient from the head, too. In fp32, their sum is a third tensor.
    parts = (2 if settings.precision.dtype == "fp32" else 1) + accumulates
    temporary = parts * FP32 * max(own)
    if not settings.optimizer.fused:
        temporary = max(temporary, FP32 * sum(own))
    if settings.optimizer.name == "muon":
        # the stacked updates, their result, and four and a half tensors of the iteration, which is in fp32 or bf16
        each = 2 * FP32 + 9 * (2 if settings.precision.dtype == "bf16" else FP32) // 2
        for matrices in model.matrices:
            stacked = min(len(matrices), settings.optimizer.muon.together(matrices[0])) * matrices[0]
            temporary = max(temporary, each * stacked)
    return temporary + (0 if accumulates else FP32 * sum(own))


def _sharded_states(settings: RunConfig, model: Sizes, ranks: int) -> tuple[dict[str, int], int]:
    """Return DeepSpeed's memory for weights, gradients and optimizer states on the GPU, and for offload on the host.

    Both are in bytes. Gradients are those kept between micro-batches. ZeRO (arXiv:1910.02054) needs 2Ψ + 2Ψ + 12Ψ bytes
    for Ψ parameters: weights, gradients, optimizer states. Stage 1 shards the last term, stage 2 the last two, and
    stage 3 all three. DeepSpeed also needs an fp32 copy of the weights; in stages 1 and 2, padding of two flat groups
    (with and without weight decay) to a multiple of 2·ranks elements; in stage 2, the whole gradient of a parameter
    that straddles a shard boundary; in stage 3, padding of each parameter, and a whole copy of each small one.
    """
    zero, width = settings.zero, BYTES[settings.precision.dtype]
    own, frozen, host = [elements for elements, _ in model.trained], sum(model.frozen), 0
    if zero.stage < 3:
        groups = _groups(model, ranks)
        shard = sum(share for _, share in groups)
        weights, optimizer = width * (shard * ranks + frozen), (MASTER + MOMENTS) * shard
        gradients = width * (_touched(groups, ranks) if zero.stage == 2 else sum(own))
        # Offload adds fp32 gradients, updated weights not yet copied to the GPU, and gradient sums over micro-batches.
        if zero.offload_optimizer:
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
    return {mark("weights"): weights, mark("gradients"): gradients, mark("optimizer"): optimizer}, host


def _groups(model: Sizes, ranks: int) -> list[tuple[list[int], int]]:
    """Return the two flat parameter groups of stages 1 and 2: the parameter sizes and a rank's share [elements]."""
    groups = [[size for size, decayed in model.trained if decayed == wanted] for wanted in (True, False)]
    return [(sizes, -(-sum(sizes) // (2 * ranks)) * 2) for sizes in groups]


def _touched(groups: list[tuple[list[int], int]], ranks: int) -> int:
    """Return the largest total size of the parameters that lie at least partly in a rank's shard [elements]."""
    counts = [0] * ranks
    for sizes, share in groups:
        begin = 0
        for size in sizes:
            for rank in range(begin // share, -(-(begin + size) // share)):
                counts[rank] += size
            begin += size
    return max(counts)


def _sharded_temporaries(settings: RunConfig, model: Sizes, ranks: int) -> tuple[int, int]:
    """Return DeepSpeed's temporary memory for the backward pass and for the optimizer step [bytes]."""
    zero, width = settings.zero, BYTES[settings.precision.dtype]
    own = [elements for elements, _ in model.trained]
    total, largest = sum(own), max(own)
    shard = -(-total // ranks)
    # fp32 gradients, plus the gradients they are converted from (fused AdamW) or the temporaries in unfused AdamW
    update = 4 + (width if settings.optimizer.fused else MOMENTS)
    # Computing the gradient norm converts each gradient to fp64.
    step = 0 if zero.offload_optimizer else max(update * shard, 8 * largest)
    bucket = width * zero.reduce_bucket_size
    if zero.stage == 3:
        return 2 * bucket + width * min(zero.stage3_max_live_parameters, model.parameters), step
    buffers = bucket * (1 + zero.overlap_comm) if zero.contiguous_gradients else 0
    # the copy that is sent to other ranks
    buffers += width * min(zero.reduce_bucket_size, total)
    if zero.offload_optimizer:
        return buffers + width * largest, step
    # gradients for the current micro-batch, in addition to their sum so far
    beside = zero.stage == 1 or _accumulates(settings, ranks)
    return buffers + beside * width * shard, step


def _accumulates(settings: RunConfig, ranks: int) -> bool:
    batch = settings.batch
    return (batch.local_size or (batch.global_size or 0) // ranks) > batch.micro_size

"""Memory and work of a training run, worked out before it starts. No torch, no advice: planner.py compares and advises.

What a model is made of is its `sizes`: those of GPT-2 and GPT-NeoX are here, another model registers its own beside its settings. The rest holds for all.
States (weights, gradients, optimizer) are what DeepSpeed 0.19 allocates, to the byte: tests/pretrain/test_planner.py holds them against
a run of two ranks. Activations and logits are formulas, held against PyTorch's allocations; buffers and allowance are on the safe side.
Not counted: torch.compile, the workspace inside a kernel, evaluation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from course_lib.pretrain.config import ModelConfig, PretrainConfig
from course_lib.pretrain.task import RunSettings

GB = 1_000_000_000
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}  # of a weight, an activation, a gradient
MASTER, MOMENTS = 4, 8  # bytes a parameter: the fp32 weights that AdamW updates, its two fp32 moments
GELU_KEEPS = 1  # tensors of feed-forward width kept for the GELU: 1 by the fused kernels (gelu_pytorch_tanh, gelu), 4 by gelu_new
LOGIT_BYTES = 12  # fp32 log-softmax, and two gradients of its size when the backward pass begins
STAGE0_BUCKET = 500_000_000  # gradients DeepSpeed sums at a time without ZeRO [elements]
CONTEXT = GB  # CUDA context, NCCL, cuBLAS
FRAGMENTATION = 0.05  # of everything else: blocks that the caching allocator cannot fill


def tensors(model: ModelConfig) -> Iterator[tuple[int, bool]]:
    """(elements, weight-decayed) of every parameter in the order of Hugging Face's model.

    The head of a GPT-2 is its embedding, and positions have one; a GPT-NeoX has no positions, and a head of its own.
    """
    h, f, neox = model.hidden_size, model.ffn, model.architecture == "gpt-neox"
    norm, embedding = [(h, False), (h, False)], (model.vocab_size * h, True)
    attention = [(3 * h * h, True), (3 * h, False), (h * h, True), (h, False)]  # QKV, projection
    feed_forward = [(h * f, True), (f, False), (f * h, True), (h, False)]
    block = [*norm, *norm, *attention, *feed_forward] if neox else [*norm, *attention, *norm, *feed_forward]
    yield from [embedding] if neox else [embedding, (model.max_position_embeddings * h, True)]
    yield from block * model.num_layers
    yield from [*norm, embedding] if neox else norm


def parameters(model: ModelConfig) -> int:
    """Trainable parameters, exactly: 12·L·h² + 13·L·h + (V + S)·h + 2·h where the feed-forward layer is 4·h wide; GPT-NeoX: 2·V for V + S."""
    return sum(elements for elements, _ in tensors(model))


def flops_per_token(model: ModelConfig, seq_length: int) -> float:
    """Floating-point operations to train on one token: 6·parameters + 12·layers·width·length; an embedding only looked up is none of them.

    Forward and backward pass, a multiply-add as two, attention over the whole sequence (PaLM, arXiv:2204.02311, appendix B).
    What recompute does again is not counted: utilisation asks for useful work.
    """
    looked_up = model.vocab_size * model.hidden_size if model.architecture == "gpt-neox" else 0
    return 6.0 * (parameters(model) - looked_up) + 12.0 * model.num_layers * model.hidden_size * seq_length


@dataclass(frozen=True)
class Sizes:
    """What the memory of a run depends on, besides the sections that the settings of every run have."""

    trained: tuple[tuple[int, bool], ...]  # (elements, weight-decayed) of each trained parameter, in the model's order
    frozen: tuple[int, ...]  # elements of each parameter that is not
    activations: int  # what the forward pass of a micro batch keeps [bytes]
    logits: int  # with their loss and its gradients [bytes]
    block: int  # what one layer needs for itself while there are no logits [bytes]
    flops_per_token: float  # to train on one token
    length: int  # of a sample [tokens]

    @property
    def parameters(self) -> int:
        """Trained and frozen."""
        return sum(elements for elements, _ in self.trained) + sum(self.frozen)


@singledispatch
def sizes(settings: Any) -> Sizes:
    """The sizes of the model that a run trains. A model's are registered by the module that knows it."""
    raise TypeError(f"no sizes are registered for {type(settings).__name__}")


@sizes.register
def _(settings: PretrainConfig) -> Sizes:
    length = settings.data.seq_length
    flops = flops_per_token(settings.model, length)
    return Sizes(tuple(tensors(settings.model)), (), *_activations(settings), flops, length)


@dataclass(frozen=True)
class Plan:
    """Bytes of one rank at its peak."""

    settings: Any  # those of a run, of which `sizes` knows the model
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


def plan(settings: RunSettings, ranks: int | None = None) -> Plan:
    """The memory of one of `ranks` data-parallel GPUs; unset: launch.ranks, or 1."""
    ranks = ranks or settings.launch.ranks or 1
    model = sizes(settings)
    states, host = _states(settings, model, ranks)
    backward, step = _temporaries(settings, model, ranks)
    backward += max(0, model.block - model.logits)  # a block is computed again when the logits are gone
    after = max(0, step - backward - model.activations - model.logits)  # the step comes when the activations are gone
    parts = states | {"activations": model.activations, "logits": model.logits, "buffers": backward + after}
    parts["allowance"] = CONTEXT + int(FRAGMENTATION * sum(parts.values()))
    return Plan(settings, ranks, parts, host)


def _states(settings: RunSettings, model: Sizes, ranks: int) -> tuple[dict[str, int], int]:
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


def _activations(settings: PretrainConfig) -> tuple[int, int, int]:
    """What the forward pass keeps, the logits with their loss, and what one block needs in the backward pass besides [bytes].

    Korthikanti et al. (arXiv:2205.05198): a block keeps 34·s·b·h bytes in 16 bit (dropout a byte an element) and the scores, 5·a·s²·b.
    Eager attention keeps those; sdpa and flash_attention_2 keep a number per row instead.
    """
    model, width = settings.model, BYTES[settings.precision.dtype]
    tokens = settings.batch.micro_size * settings.data.seq_length
    stream, wide = tokens * model.hidden_size, tokens * model.ffn
    rows = tokens * model.num_attention_heads
    mask = stream if model.hidden_dropout_prob else 0
    neox, eager = model.architecture == "gpt-neox", model.attention == "eager"
    softmax = 4 if neox else width  # GPT-NeoX's is in fp32, read in the model's format
    read = width + 1 if model.attention_probs_dropout_prob else width if softmax != width else 0
    core = rows * settings.data.seq_length * (softmax + read) if eager else 4 * rows
    attention = 4 * width * stream + mask  # q, k, v, and what the projection reads
    if neox:  # q and k turned; v is a view that keeps all three as they were, unless copied by eager; fused: the output before the projection's copy
        attention += 2 * width * stream
        core += (-2 if eager else 1) * width * stream
    reads = 3 if model.use_parallel_residual else 4  # norms and matrices; norms side by side read the same
    rest = reads * width * stream + (GELU_KEEPS + 1) * width * wide + mask
    block = rest + attention + core
    kept = {"none": block, "core_attn": rest + attention, "full_attn": rest, "full": width * stream}[model.recompute]
    ends = 2 * width * stream + mask  # embedding, last norm, head
    again = block - kept + max(2 * width * wide, core)  # and the gradients of its widest tensors
    return model.num_layers * kept + ends, LOGIT_BYTES * tokens * model.vocab_size, again


def _temporaries(settings: RunSettings, model: Sizes, ranks: int) -> tuple[int, int]:
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


def _accumulates(settings: RunSettings, ranks: int) -> bool:
    batch = settings.batch
    return (batch.local_size or (batch.global_size or 0) // ranks) > batch.micro_size

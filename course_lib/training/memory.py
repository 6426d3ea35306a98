"""What a training run needs on each of its GPUs, computed before it starts. planner.py compares plans.

Parameters are counted in the model itself, which its kind of run builds on torch's meta device, where it takes no
memory. Weights, gradients and optimizer states follow from them: they are exactly what PlainEngine and DeepSpeed 0.19
allocate. ZeRO (Rajbhandari et al. 2019, arXiv:1910.02054) shards them.

Activations follow from one formula for a transformer layer, `Layer`. With the numbers of a GPT-2 in 16 bits it is that
of Korthikanti et al. (2022, arXiv:2205.05198): 34·s·b·h + 5·a·s²·b bytes, of which fused attention does not keep the
second term. Each kind of run gives its numbers: `pretrain/memory.py` (also for a frozen model behind a prefix) and
`gptsan/memory.py`. The memory planner's tests compare activations, casts and logits with what PyTorch allocates, and
with an H200.

Buffers and allowance are upper estimates. Not included: torch.compile, temporary memory inside a kernel, evaluation.
This module does not import torch.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from course_lib.checkpoints.number_formats import BYTES
from course_lib.language.words import mark, tr
from course_lib.training.parameter_groups import decays
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


class Parameter(NamedTuple):
    """A parameter of a model."""

    name: str
    shape: tuple[int, ...]
    trained: bool = True

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def parameters_of(model: Any) -> tuple[Parameter, ...]:
    """Return the parameters of a torch module in its order, a tied one once. The module may be on the meta device."""
    return tuple(Parameter(name, tuple(tensor.shape)) for name, tensor in model.named_parameters())


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A transformer layer that gradients reach, with one micro-batch.

    For its backward pass it keeps the input of each norm, of each trained matrix and of each activation function;
    queries, keys, values and result of the attention; and a byte for each element that dropout may set to 0.
    """

    samples: int  # in a micro-batch
    length: int  # of a sample [tokens]
    keys: int  # for each query: the tokens of the sample, and what is before them, such as a prefix
    width: int  # of the residual stream
    heads: int
    ffn: int  # width of the feed-forward part, or of one of its experts
    experts: int = 1  # each token goes to one of them
    # bytes of an element in matrix products, in the inputs of norms and in the residual stream
    matrix_bytes: int
    norm_bytes: int
    stream_bytes: int
    # number of kept tensors [tokens, width], and [tokens, ffn] for `wide`
    norms: int  # inputs of norms
    attention: int  # in the attention, besides keys and values
    rotated: int = 0  # queries and keys with rotary positions
    core: int = 0  # in softmax(QKᵀ)V
    feed_forward: int  # in the feed-forward part
    wide: int
    mask: int = 0  # elements of the attention mask
    # bytes kept for each query, key and head; 0: by a fused kernel, which keeps one fp32 value for each query and head
    score_bytes: int = 0
    router: int = 0  # bytes that a router keeps
    dropout: bool = False
    # what the backward pass recomputes (model.recompute), and the bytes of the weights that autocast casts again there
    recompute: str = "none"
    casts: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens in a micro-batch."""
        return self.samples * self.length

    @property
    def stream(self) -> int:
        """Number of elements in a tensor [tokens, width]."""
        return self.tokens * self.width

    def kept(self) -> int:
        """Return the activations that the layer keeps for its backward pass [bytes]."""
        norms, attention, core, feed_forward = self._parts()
        stream = self.stream_bytes * self.stream
        # What is recomputed keeps its input, which for the attention is the output of a norm.
        by_recompute = {
            "none": norms + attention + core + feed_forward,
            "core_attn": norms + attention + feed_forward,
            "full_attn": norms + stream + feed_forward,
            "full": stream,
        }
        return by_recompute[self.recompute]

    def backward(self) -> int:
        """Return what the layer's backward pass needs besides what is kept [bytes].

        These are the activations and casts that it recomputes, and the largest of: the gradients of the input and the
        output of an activation function, for one expert at a time; four gradients of the residual stream; the
        gradients in softmax(QKᵀ)V.
        """
        norms, attention, core, feed_forward = self._parts()
        recomputed = norms + attention + core + feed_forward - self.kept() + self.casts
        wide = 2 * self.matrix_bytes * self.tokens * (self.ffn // self.experts)
        return recomputed + max(wide, 4 * self.stream_bytes * self.stream, core)

    def _parts(self) -> tuple[int, int, int, int]:
        """Return what is kept without recomputation [bytes]: by norms, attention, softmax(QKᵀ)V and feed-forward."""
        dropout = self.stream if self.dropout else 0
        norms = self.norms * self.norm_bytes * self.stream
        keys_and_values = 2 * self.samples * self.keys * self.width
        attention = self.matrix_bytes * (self.attention * self.stream + keys_and_values) + dropout
        # Autocast rotates in the format of the residual stream; what softmax(QKᵀ)V reads is cast again.
        rotated_bytes = self.stream_bytes if self.recompute == "core_attn" else self.matrix_bytes
        attention += self.rotated * rotated_bytes * self.stream
        rows = self.tokens * self.heads
        scores = self.score_bytes * rows * self.keys if self.score_bytes else 4 * rows
        core = scores + self.matrix_bytes * (self.mask + self.core * self.stream)
        wide = self.wide * self.tokens * self.ffn
        feed_forward = self.matrix_bytes * (self.feed_forward * self.stream + wide) + dropout + self.router
        return norms, attention, core, feed_forward


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the memory of a run depends on in addition to the settings common to all kinds: its model and one sample."""

    counted: tuple[Parameter, ...]  # the model's, in its order
    layers: tuple[Layer, ...]  # those that gradients reach
    ends: int  # activations kept outside the layers [bytes]
    logits: int  # logits with the loss and its gradients [bytes]
    flops_per_token: float  # floating-point operations to train on one token
    length: int  # tokens per sample
    all_casts: int = 0  # casts of trained fp32 weights to 16 bits [bytes]; 0 without autocast
    # elements of each matrix that Muon updates instead of AdamW, by shape
    matrices: tuple[tuple[int, ...], ...] = ()

    @property
    def parameters(self) -> int:
        """Number of parameters, trained and frozen."""
        return sum(each.elements for each in self.counted)

    @property
    def trained(self) -> tuple[tuple[int, bool], ...]:
        """Number of elements and whether weight decay applies, for each trained parameter."""
        return tuple((each.elements, decays(each.name)) for each in self.counted if each.trained)

    @property
    def frozen(self) -> tuple[int, ...]:
        """Number of elements of each parameter that is not trained."""
        return tuple(each.elements for each in self.counted if not each.trained)

    @property
    def activations(self) -> int:
        """What the forward pass of one micro-batch keeps [bytes]."""
        return sum(layer.kept() for layer in self.layers) + self.ends

    @property
    def casts(self) -> int:
        """Casts of weights that the backward pass still needs after the forward pass [bytes]."""
        return self.all_casts - sum(layer.casts for layer in self.layers)

    @property
    def block(self) -> int:
        """What the backward pass of one layer needs after the logits are freed [bytes]."""
        return max((layer.backward() for layer in self.layers), default=0)


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

"""What a training run needs on each of its GPUs, computed before it starts. planner.py compares plans.

The parameters of GPT-2 and GPT-NeoX are listed in `pretrain/memory.py`. Those of a GPTSAN and of a prefix's encoder are
counted in the model itself, built on torch's meta device, where it takes no memory. Weights, gradients and optimizer
states follow from the parameters: they are exactly what PlainEngine and DeepSpeed 0.19 allocate. ZeRO (Rajbhandari et
al. 2019, arXiv:1910.02054) shards them.

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
from course_lib.language.words import tr, tr_noop
from course_lib.training.parameter_groups import decays
from course_lib.training.settings import RunConfig

GB = 1_000_000_000
# bytes per parameter: the fp32 weights that AdamW updates, and its two fp32 moments
MASTER, MOMENTS = 4, 8
# bytes per element of a gradient, of Muon's one moment, and of any other fp32 tensor
FP32 = 4
# bytes per parameter: temporaries of an AdamW that is not fused, under DeepSpeed
UNFUSED_ADAMW = 8
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

    For its backward pass it saves the input of each norm, of each trained matrix and of each activation function;
    queries, keys, values and result of the attention; and a byte for each element that dropout may set to 0.
    """

    samples: int  # in a micro-batch
    length: int  # of a sample [tokens]
    keys: int  # for each query: the tokens of the sample, and what is before them, such as a prefix
    width: int  # of the residual stream [elements per token]
    heads: int
    ffn: int  # width of the feed-forward part, or of one expert
    experts: int = 1  # each token goes to one of them
    # bytes of an element in matrix products, in the inputs of norms and in the residual stream
    matrix_bytes: int
    norm_bytes: int
    stream_bytes: int
    # number of saved tensors [tokens, width], and [tokens, ffn] for `wide_tensors`
    norm_tensors: int  # inputs of norms
    attention_tensors: int  # in the attention, besides keys and values
    rotated_tensors: int = 0  # queries and keys with rotary positions
    core_tensors: int = 0  # in softmax(QKᵀ)V; below 0: it frees tensors that the attention counts
    feed_forward_tensors: int  # in the feed-forward part
    wide_tensors: int
    mask_elements: int = 0  # of the attention mask
    # bytes saved for each query, key and head; 0: by a fused kernel, which saves one fp32 value for each query and head
    score_bytes: int = 0
    router_bytes: int = 0  # that a router saves
    dropout: bool = False
    # what the backward pass recomputes (model.recompute), and the bytes of the weights that autocast casts again there
    recompute: str = "none"
    recast_bytes: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens in a micro-batch."""
        return self.samples * self.length

    @property
    def stream(self) -> int:
        """Number of elements in a tensor [tokens, width]."""
        return self.tokens * self.width

    def saved(self) -> int:
        """Return the activations that the layer saves for its backward pass [bytes]."""
        norms, attention, core, feed_forward = self._saved_by_operation()
        stream = self.stream_bytes * self.stream
        # Of what is recomputed, the input is saved, which for the attention is the output of a norm.
        by_recompute = {
            "none": norms + attention + core + feed_forward,
            "core_attn": norms + attention + feed_forward,
            "full_attn": norms + stream + feed_forward,
            "full": stream,
        }
        return by_recompute[self.recompute]

    def backward(self) -> int:
        """Return what the layer's backward pass needs besides what is saved [bytes].

        These are the activations and casts that it recomputes, and the largest of: the gradients of the input and the
        output of an activation function, for one expert at a time; four gradients of the residual stream; the
        gradients in softmax(QKᵀ)V.
        """
        norms, attention, core, feed_forward = self._saved_by_operation()
        recomputed = norms + attention + core + feed_forward - self.saved() + self.recast_bytes
        # Assumed: tokens are spread evenly over the experts, so one expert has tokens / experts of them, each with ffn
        # elements.
        wide = 2 * self.matrix_bytes * self.tokens * (self.ffn // self.experts)
        return recomputed + max(wide, 4 * self.stream_bytes * self.stream, core)

    def _saved_by_operation(self) -> tuple[int, int, int, int]:
        """Return what is saved without recomputation [bytes]: by norms, attention, softmax(QKᵀ)V and feed-forward."""
        # one byte for each element
        dropout = self.stream if self.dropout else 0
        norms = self.norm_tensors * self.norm_bytes * self.stream
        keys_and_values = 2 * self.samples * self.keys * self.width
        attention = self.matrix_bytes * (self.attention_tensors * self.stream + keys_and_values) + dropout
        # Autocast rotates in the format of the residual stream; what softmax(QKᵀ)V reads is cast again.
        rotated_bytes = self.stream_bytes if self.recompute == "core_attn" else self.matrix_bytes
        attention += self.rotated_tensors * rotated_bytes * self.stream
        rows = self.tokens * self.heads
        scores = self.score_bytes * rows * self.keys if self.score_bytes else FP32 * rows
        core = scores + self.matrix_bytes * (self.mask_elements + self.core_tensors * self.stream)
        feed_forward_elements = self.feed_forward_tensors * self.stream + self.wide_tensors * self.tokens * self.ffn
        feed_forward = self.matrix_bytes * feed_forward_elements + dropout + self.router_bytes
        return norms, attention, core, feed_forward


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the memory of a run depends on in addition to the settings common to all kinds: its model and one sample."""

    counted: tuple[Parameter, ...]  # the model's, in its order
    layers: tuple[Layer, ...]  # those that gradients reach
    ends: int  # activations saved outside the layers [bytes]
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
        """What the forward pass of one micro-batch saves [bytes]."""
        return sum(layer.saved() for layer in self.layers) + self.ends

    @property
    def saved_casts(self) -> int:
        """Casts that the forward pass saves for the backward pass: all that no layer makes again [bytes]."""
        return self.all_casts - sum(layer.recast_bytes for layer in self.layers)

    @property
    def layer_backward(self) -> int:
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
    by_deepspeed = settings.uses_deepspeed(ranks)
    # DeepSpeed casts the whole model to 16 bits; otherwise autocast casts weights and activations.
    autocast = not by_deepspeed and settings.precision.dtype != "fp32"
    model = settings.sizes(autocast)
    if by_deepspeed:
        states, host = _deepspeed_states(settings, model, ranks)
        backward_bytes, step_bytes = _deepspeed_temporaries(settings, model, ranks)
    else:
        states, host = _plain_states(settings, model, ranks), 0
        backward_bytes, step_bytes = model.saved_casts, _plain_step(settings, model, ranks)
    # The backward pass of a layer comes after the logits are freed, so it shares their memory.
    backward_bytes += max(0, model.layer_backward - model.logits)
    # The optimizer step comes after the activations and logits are freed, so it shares their memory.
    after_bytes = max(0, step_bytes - backward_bytes - model.activations - model.logits)
    parts = states | {
        tr_noop("activations"): model.activations,
        tr_noop("logits"): model.logits,
        tr_noop("buffers"): backward_bytes + after_bytes,
    }
    parts[tr_noop("allowance")] = CONTEXT + int(FRAGMENTATION * sum(parts.values()))
    return Plan(settings, ranks, parts, host)


def _plain_states(settings: RunConfig, model: Sizes, ranks: int) -> dict[str, int]:
    """Return the memory for weights, gradients and optimizer states of a run without DeepSpeed [bytes].

    Trained weights and their gradients are in fp32. Gradients are those kept between micro-batches: in a step of one
    micro-batch, they come as the activations go (see `_plain_step`).
    """
    trained = sum(elements for elements, _ in model.trained)
    optimizer = MOMENTS * trained
    if settings.optimizer.name == "muon":
        optimizer -= FP32 * sum(map(sum, model.matrices))
    return {
        tr_noop("weights"): MASTER * trained + BYTES[settings.precision.dtype] * sum(model.frozen),
        tr_noop("gradients"): FP32 * trained * _accumulates(settings, ranks),
        tr_noop("optimizer"): optimizer,
    }


def _plain_step(settings: RunConfig, model: Sizes, ranks: int) -> int:
    """Return the memory needed from the end of the backward pass to that of the optimizer step [bytes].

    It is for the gradients, unless they stay between micro-batches anyway, and for what is larger: the tensors that the
    gradient of the largest parameter is added up from, or the temporaries of the optimizer.
    """
    trained_sizes, accumulates = [elements for elements, _ in model.trained], _accumulates(settings, ranks)
    # Assumed: the largest parameter is an embedding and also the output head (tied), so it gets a gradient from both.
    # In fp32, their sum is a third tensor.
    summands = (2 if settings.precision.dtype == "fp32" else 1) + accumulates
    temporary = summands * FP32 * max(trained_sizes)
    if not settings.optimizer.fused:
        temporary = max(temporary, FP32 * sum(trained_sizes))
    if settings.optimizer.name == "muon":
        # the stacked updates, their result, and four and a half tensors of the iteration, which is in fp32 or bf16
        each = 2 * FP32 + 9 * (2 if settings.precision.dtype == "bf16" else FP32) // 2
        for matrices in model.matrices:
            stacked = min(len(matrices), settings.optimizer.muon.together(matrices[0])) * matrices[0]
            temporary = max(temporary, each * stacked)
    return temporary + (0 if accumulates else FP32 * sum(trained_sizes))


def _deepspeed_states(settings: RunConfig, model: Sizes, ranks: int) -> tuple[dict[str, int], int]:
    """Return DeepSpeed's memory for weights, gradients and optimizer states on the GPU, and for offload on the host.

    Both are in bytes. Gradients are those kept between micro-batches. ZeRO (arXiv:1910.02054) needs 2Ψ + 2Ψ + 12Ψ bytes
    for Ψ parameters: weights, gradients, optimizer states. Stage 1 shards the last term, stage 2 the last two, and
    stage 3 all three. DeepSpeed also needs an fp32 copy of the weights; in stages 1 and 2, padding of two flat groups
    (with and without weight decay) to a multiple of 2·ranks elements; in stage 2, the whole gradient of a parameter
    that straddles a shard boundary; in stage 3, padding of each parameter, and a whole copy of each small one.
    """
    zero, element_bytes = settings.zero, BYTES[settings.precision.dtype]
    trained_sizes, host = [elements for elements, _ in model.trained], 0
    if zero.stage < 3:
        groups = _groups(model, ranks)
        shard = sum(share for _, share in groups)
        weights = element_bytes * (shard * ranks + sum(model.frozen))
        gradients = element_bytes * (_touched(groups, ranks) if zero.stage == 2 else sum(trained_sizes))
        optimizer = (MASTER + MOMENTS) * shard
        # Offload adds fp32 gradients, updated weights not yet copied to the GPU, and gradient sums over micro-batches.
        if zero.offload_optimizer:
            copies = 2 if _accumulates(settings, ranks) else 1
            host = optimizer + (FP32 + copies * element_bytes) * shard + element_bytes * max(trained_sizes)
            optimizer = 0
            if zero.stage == 2:
                gradients = 0
    else:
        shard = sum(_ceil_div(size, ranks) for size in trained_sizes)
        frozen_shard = sum(_ceil_div(size, ranks) for size in model.frozen)
        # The parameters that each rank also has whole. DeepSpeed calls them persistent.
        small = [size for size in (*trained_sizes, *model.frozen) if size <= zero.stage3_param_persistence_threshold]
        persistent = element_bytes * ranks * sum(_ceil_div(size, ranks) for size in small)
        sharded = element_bytes * (shard + frozen_shard)
        weights = sharded + persistent
        gradients = element_bytes * shard
        optimizer = (MASTER + MOMENTS) * shard
        if zero.offload_optimizer:
            host = optimizer + gradients + FP32 * shard
            gradients, optimizer = 0, 0
        if zero.offload_param:
            host += sharded
            weights = persistent
    return {tr_noop("weights"): weights, tr_noop("gradients"): gradients, tr_noop("optimizer"): optimizer}, host


def _groups(model: Sizes, ranks: int) -> list[tuple[list[int], int]]:
    """Return the two flat parameter groups of stages 1 and 2: the parameter sizes and a rank's share [elements]."""
    groups = [[size for size, decayed in model.trained if decayed == wanted] for wanted in (True, False)]
    return [(sizes, _ceil_div(sum(sizes), 2 * ranks) * 2) for sizes in groups]


def _touched(groups: list[tuple[list[int], int]], ranks: int) -> int:
    """Return the largest total size of the parameters that lie at least partly in a rank's shard [elements]."""
    counts = [0] * ranks
    for sizes, share in groups:
        begin = 0
        for size in sizes:
            for rank in range(begin // share, _ceil_div(begin + size, share)):
                counts[rank] += size
            begin += size
    return max(counts)


def _deepspeed_temporaries(settings: RunConfig, model: Sizes, ranks: int) -> tuple[int, int]:
    """Return DeepSpeed's temporary memory for the backward pass and for the optimizer step [bytes]."""
    zero, element_bytes = settings.zero, BYTES[settings.precision.dtype]
    trained_sizes = [elements for elements, _ in model.trained]
    total, largest = sum(trained_sizes), max(trained_sizes)
    shard = _ceil_div(total, ranks)
    # Per parameter: its fp32 gradient, plus the gradient it is converted from (fused AdamW) or the temporaries of an
    # unfused AdamW.
    update = FP32 + (element_bytes if settings.optimizer.fused else UNFUSED_ADAMW)
    # Computing the gradient norm converts each gradient to fp64.
    step = 0 if zero.offload_optimizer else max(update * shard, 8 * largest)
    bucket = element_bytes * zero.reduce_bucket_size
    if zero.stage == 3:
        return 2 * bucket + element_bytes * min(zero.stage3_max_live_parameters, model.parameters), step
    buffers = bucket * (1 + zero.overlap_comm) if zero.contiguous_gradients else 0
    # the copy that is sent to other ranks
    buffers += element_bytes * min(zero.reduce_bucket_size, total)
    if zero.offload_optimizer:
        return buffers + element_bytes * largest, step
    # gradients for the current micro-batch, in addition to their sum so far
    if zero.stage == 1 or _accumulates(settings, ranks):
        buffers += element_bytes * shard
    return buffers, step


def _ceil_div(dividend: int, divisor: int) -> int:
    """Return the quotient rounded up."""
    return -(-dividend // divisor)


def _accumulates(settings: RunConfig, ranks: int) -> bool:
    """Return whether a step adds up the gradients of several micro-batches."""
    batch = settings.batch
    return (batch.local_size or (batch.global_size or 0) // ranks) > batch.micro_size

"""Memory and work of a pretraining run, worked out before it starts. Imports no torch; GB means 1e9 bytes.

States (weights, gradients, optimizer) are what DeepSpeed 0.19 allocates, to the byte: tests/pretrain/test_planner.py compares them with a
real run of two ranks. Activations and logits are formulas (Korthikanti et al., arXiv:2205.05198, and what PyTorch's kernels keep); the rest
is a stated allowance. Not counted: torch.compile, temporaries of a kernel, evaluation, and tensor or pipeline parallelism, which the course has not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.config import to_dict
from course_lib.errors import UsageError
from course_lib.pretrain.config import ModelConfig, PretrainConfig

GB = 1_000_000_000
CARDS = (16, 24, 40, 80, 141)  # GB: V100, RTX 4090 / A10G, A100, A100 / H100, H200
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
MOMENTS, MASTER = 8, 4  # bytes a parameter: two moments of AdamW; the weights it updates (fp32)
RECOMPUTE = ("none", "core_attn", "full_attn", "full")
GELU_KEEPS = 4  # tensors of the feed-forward width that the GELU keeps: 1 in the fused kernel (gelu_pytorch_tanh), 4 in transformers' gelu_new
LOGIT_BYTES = 12  # log-softmax kept (fp32), and two gradients of its size at the start of the backward pass
STAGE0_BUCKET = 500_000_000  # elements: what DeepSpeed flattens at a time to sum gradients without ZeRO
CONTEXT = GB  # CUDA context, NCCL, cuBLAS workspaces
FRAGMENTATION = 0.05  # of everything else: blocks that the caching allocator cannot fill


def tensors(model: ModelConfig) -> Iterator[tuple[int, bool]]:
    """(elements, weight-decayed) of every parameter, in the order of GPT2LMHeadModel. The head is the embedding, tied."""
    h, f = model.hidden_size, model.ffn
    yield from ((model.vocab_size * h, True), (model.max_position_embeddings * h, True))
    for _ in range(model.num_layers):
        yield from (
            (h, False),
            (h, False),
            (3 * h * h, True),
            (3 * h, False),
            (h * h, True),
            (h, False),
        )  # norm, QKV, projection
        yield from ((h, False), (h, False), (h * f, True), (f, False), (f * h, True), (h, False))  # norm, feed-forward
    yield from ((h, False), (h, False))


def parameters(model: ModelConfig) -> int:
    """Trainable parameters, exactly: 12·L·h² + 13·L·h + (V+S)·h + 2h where the feed-forward layer is 4·h wide."""
    return sum(elements for elements, _ in tensors(model))


def flops_per_token(model: ModelConfig, seq_length: int) -> float:
    """Floating-point operations to train on one token: 6·parameters + 12·layers·width·length.

    Forward and backward pass, a multiplication and an addition as two, attention over the whole sequence (PaLM, arXiv:2204.02311,
    appendix B). What recompute does again is not counted: model FLOPs utilisation asks for useful work.
    """
    return 6.0 * parameters(model) + 12.0 * model.num_layers * model.hidden_size * seq_length


@dataclass(frozen=True)
class Plan:
    """Bytes of one rank. Parts add up to the peak; `host` is what lies in host memory instead, per rank."""

    ranks: int
    settings: PretrainConfig
    parts: dict[str, int]
    host: int

    @property
    def total(self) -> int:
        """Peak of one GPU [bytes]."""
        return sum(self.parts.values())

    @property
    def label(self) -> str:
        """Stage and recompute choice."""
        return f"ZeRO-{self.settings.zero.stage}, recompute {self.settings.model.recompute}"


@dataclass(frozen=True)
class Fit:
    """Whether a plan fits a card, and if not, changes that make it fit: each on top of those before, with the peak it leads to [bytes]."""

    card: int  # GB
    fits: bool
    advice: list[tuple[str, int]] = field(default_factory=list)

    @property
    def helped(self) -> bool:
        """Whether it fits, if need be with all of the advice."""
        return self.fits or bool(self.advice and self.advice[-1][1] <= self.card * GB)


def plan(settings: PretrainConfig, ranks: int | None = None) -> Plan:
    """The memory of one of `ranks` data-parallel GPUs (unset: launch.ranks, or 1)."""
    ranks = ranks or settings.launch.ranks or 1
    states, host = _states(settings, ranks)
    activations, logits, working = _activations(settings)
    during, after = _temporaries(settings, ranks)
    during += max(0, working - logits)  # a block is recomputed after the logits are gone
    parts = states | {"activations": activations, "logits": logits}
    parts["buffers"] = during + max(
        0, after - during - activations - logits
    )  # the step comes when activations are gone
    parts["allowance"] = CONTEXT + int(FRAGMENTATION * sum(parts.values()))
    return Plan(ranks, settings, parts, host)


def grid(settings: PretrainConfig, ranks: int | None = None) -> list[Plan]:
    """The same run at every ZeRO stage and recompute choice. Offload stays where the stage allows it."""
    choices = [(stage, recompute) for stage in range(4) for recompute in RECOMPUTE]
    return [plan(_with(settings, **{"zero.stage": s, "model.recompute": r}), ranks) for s, r in choices]


def what_fits(settings: PretrainConfig, ranks: int | None = None) -> list[Fit]:
    """For each card: whether the run fits, and what to change, checked by planning the changed run."""
    base = plan(settings, ranks)
    return [
        Fit(card, base.total <= card * GB, [] if base.total <= card * GB else _advice(base, card * GB))
        for card in CARDS
    ]


def report(settings: PretrainConfig, ranks: int | None = None) -> dict[str, Any]:
    """Everything `table` says, as JSON values [bytes]."""
    chosen = plan(settings, ranks)
    return {
        "parameters": parameters(settings.model),
        "ranks": chosen.ranks,
        "micro_size": settings.batch.micro_size,
        "dtype": settings.precision.dtype,
        "flops_per_token": flops_per_token(settings.model, settings.data.seq_length),
        "chosen": _row(chosen),
        "grid": [_row(each) for each in grid(settings, ranks)],
        "fits": [
            {"card_gb": fit.card, "fits": fit.fits, "advice": [{"change": c, "total": t} for c, t in fit.advice]}
            for fit in what_fits(settings, ranks)
        ],
    }  # fmt: skip


def table(settings: PretrainConfig, ranks: int | None = None) -> str:
    """The plan as text: a line per stage and recompute choice, then the cards."""
    chosen = plan(settings, ranks)
    names = list(chosen.parts)
    lines = [
        f"{parameters(settings.model):,} parameters, {chosen.ranks} GPU{'s' * (chosen.ranks > 1)}, {settings.precision.dtype},"
        f" micro batch {settings.batch.micro_size} × {settings.data.seq_length} tokens, attention {settings.model.attention}",
        "GB (1e9 bytes) per GPU; host: in host memory, per GPU; > marks the chosen line",
        f"  {'ZeRO':4} {'recompute':9}" + "".join(f" {name:>11}" for name in names) + f" {'total':>7} {'host':>7}",
    ]
    for each in grid(settings, ranks):
        mark = ">" if each.settings == settings else " "
        lines.append(
            f"{mark} {each.settings.zero.stage:<4} {each.settings.model.recompute:9}"
            + "".join(f" {each.parts[name] / GB:11.2f}" for name in names)
            + f" {each.total / GB:7.2f} {each.host / GB:7.2f}"
        )
    return "\n".join(lines + [_say(fit) for fit in what_fits(settings, ranks)])


def advice(settings: PretrainConfig, ranks: int | None = None) -> str:
    """What to turn when memory was not enough, in one line."""
    base = plan(settings, ranks)
    steps = ", ".join(f"{change} → {total / GB:.1f}" for change, total in _advice(base, 0))
    return f"the plan was {base.total / GB:.1f} GB per GPU; in this order, each on top of the last [GB]: {steps or 'nothing left to turn'}"


def _say(fit: Fit) -> str:
    steps = ", then ".join(f"{change} → {total / GB:.1f} GB" for change, total in fit.advice)
    if fit.fits:
        return f"{fit.card:>4} GB: fits"
    return f"{fit.card:>4} GB: does not fit; " + (
        steps if fit.helped else f"nor with {steps}" if steps else "nothing here helps"
    )


def _row(each: Plan) -> dict[str, Any]:
    zero = each.settings.zero
    return {
        "stage": zero.stage, "recompute": each.settings.model.recompute, "offload_optimizer": zero.offload_optimizer,
        "offload_param": zero.offload_param, "parts": each.parts, "total": each.total, "host": each.host,
    }  # fmt: skip


def _states(settings: PretrainConfig, ranks: int) -> tuple[dict[str, int], int]:
    """Weights, gradients between two micro batches, optimizer states [bytes]; and what of them lies on the host.

    ZeRO paper (arXiv:1910.02054): 2Ψ + 2Ψ + 12Ψ bytes of Ψ parameters, sharded from the right by stage 1, 2, 3. What DeepSpeed adds:
    flat groups (decayed, not decayed) padded to 2·ranks at stages 1 and 2; a second copy of fp32 weights from stage 1 on; whole gradients of the
    parameters that a rank's slice cuts (stage 2); every parameter padded to the ranks, and small ones whole besides (stage 3).
    """
    zero, width = settings.zero, BYTES[settings.precision.dtype]
    sizes = [elements for elements, _ in tensors(settings.model)]
    host = 0
    if zero.stage == 0:
        weights = gradients = width * sum(sizes)
        optimizer = (MOMENTS + (MASTER if width < 4 else 0)) * sum(sizes)
    elif zero.stage < 3:
        groups = _groups(settings.model, ranks)
        shard = sum(slice_ for _, slice_ in groups)
        weights = width * shard * ranks
        optimizer = (MASTER + MOMENTS) * shard
        gradients = width * (_touched(groups, ranks) if zero.stage == 2 else sum(sizes))
        if zero.offload_optimizer:  # fp32 gradients and a staging copy of the weights lie there as well
            host = optimizer + (4 + width) * shard + width * max(sizes)
            host += width * shard if _accumulates(settings, ranks) else 0
            optimizer, gradients = 0, gradients if zero.stage == 1 else 0
    else:
        shard = sum(-(-size // ranks) for size in sizes)
        whole = width * sum(size for size in sizes if size <= zero.stage3_param_persistence_threshold)
        weights, gradients, optimizer = width * shard + whole, width * shard, (MASTER + MOMENTS) * shard
        if zero.offload_optimizer:
            host, gradients, optimizer = optimizer + gradients + 4 * shard, 0, 0
        if zero.offload_param:
            host, weights = host + width * shard, whole
    return {"weights": weights, "gradients": gradients, "optimizer": optimizer}, host


def _groups(model: ModelConfig, ranks: int) -> list[tuple[list[int], int]]:
    """The two flat groups of stages 1 and 2: elements of their parameters, and the slice of a rank."""
    groups = [[size for size, decayed in tensors(model) if decayed == wanted] for wanted in (True, False)]
    return [(sizes, -(-sum(sizes) // (2 * ranks)) * 2) for sizes in groups]


def _touched(groups: list[tuple[list[int], int]], ranks: int) -> int:
    """Elements of the parameters that a rank's slices touch, on the rank with the most."""
    counts = [0] * ranks
    for sizes, slice_ in groups:
        begin = 0
        for size in sizes:
            for rank in range(begin // slice_, -(-(begin + size) // slice_)):
                counts[rank] += size
            begin += size
    return max(counts)


def _activations(settings: PretrainConfig) -> tuple[int, int, int]:
    """Kept activations, logits and loss, and the largest working set of one block in the backward pass [bytes].

    Per block without recompute: 34·s·b·h bytes in 16 bit, and 5·a·s²·b more where the scores are kept (eager attention); the fused kernels
    of sdpa and flash_attention_2 keep a log-sum-exp per row instead. Dropout keeps a byte per element.
    """
    model, width = settings.model, BYTES[settings.precision.dtype]
    tokens = settings.batch.micro_size * settings.data.seq_length
    stream = tokens * model.hidden_size
    mask = stream if model.hidden_dropout_prob else 0
    wide = width * tokens * model.ffn
    rows = tokens * model.num_attention_heads
    if model.attention == "eager":
        core = rows * settings.data.seq_length * (2 * width + 1 if model.attention_probs_dropout_prob else width)
    else:
        core = 4 * rows
    attention = 4 * width * stream + mask  # q, k, v, and what the projection reads
    rest = 4 * width * stream + (GELU_KEEPS + 1) * wide + mask  # two norms and what reads them, the feed-forward layer
    block = rest + attention + core
    kept = {"none": block, "core_attn": rest + attention, "full_attn": rest, "full": width * stream}[model.recompute]
    ends = 2 * width * stream + mask  # embedding dropout, last norm, what the head reads
    gradients = max(2 * wide, core if model.attention == "eager" else 0)
    return model.num_layers * kept + ends, LOGIT_BYTES * tokens * model.vocab_size, block - kept + gradients


def _temporaries(settings: PretrainConfig, ranks: int) -> tuple[int, int]:
    """Communication buffers of the backward pass, and what the step needs when the activations are gone [bytes]."""
    zero, width = settings.zero, BYTES[settings.precision.dtype]
    total, largest = parameters(settings.model), max(size for size, _ in tensors(settings.model))
    shard = -(-total // ranks)
    bucket = width * zero.reduce_bucket_size
    update = 4 + (
        width if settings.optimizer.fused else MOMENTS
    )  # fp32 gradients; the flat copy they come from, or temporaries
    step = (
        0 if zero.offload_optimizer else max(update * shard, 8 * largest)
    )  # or the largest gradient in fp64, for its norm
    if zero.stage == 0:
        return width * min(STAGE0_BUCKET, total), 4 * total if width < 4 else 0
    if zero.stage == 3:
        return 2 * bucket + width * min(zero.stage3_max_live_parameters, total), step
    buffers = bucket * ((2 if zero.overlap_comm else 1) if zero.contiguous_gradients else 0)
    buffers += width * min(zero.reduce_bucket_size, total)  # the flattened copy that is sent
    if zero.offload_optimizer:
        return buffers + width * largest, step
    second = (
        width * shard if zero.stage == 1 or _accumulates(settings, ranks) else 0
    )  # this micro batch's, beside the sum
    return buffers + second, step


def _accumulates(settings: PretrainConfig, ranks: int) -> bool:
    batch = settings.batch
    return (batch.local_size or (batch.global_size or 0) // ranks) > batch.micro_size


def _with(settings: PretrainConfig, **changes: Any) -> PretrainConfig:
    """The settings with dotted keys changed; offload that the stage does not allow is dropped."""
    for key, value in changes.items():
        section, name = key.split(".")
        inner = getattr(settings, section)
        more = {"offload_param": False} if key == "zero.stage" and value < 3 else {}
        more |= {"offload_optimizer": False} if key == "zero.stage" and value == 0 else {}
        settings = replace(settings, **{section: replace(inner, **more, **{name: value})})
    return settings


def _advice(base: Plan, room: int) -> list[tuple[str, int]]:
    """Changes in the order of what they cost, each the mildest that fits, or else the one that saves most. Batch per step unchanged."""
    found: list[tuple[str, int]] = []
    current = base
    for choices in (_recompute, _micro, _stage, _ranks, _offload_optimizer, _offload_param):
        tried = [(name, each) for name, each in choices(current) if each.total < 0.99 * current.total]
        if not tried:
            continue
        fitting = [pair for pair in tried if pair[1].total <= room]
        name, current = fitting[0] if fitting else min(tried, key=lambda pair: pair[1].total)
        found.append((name, current.total))
        if fitting:
            break
    return found


Choices = Iterator[tuple[str, Plan]]


def _set(current: Plan, key: str, value: Any) -> tuple[str, Plan]:
    return f"{key}={value}", plan(_with(current.settings, **{key: value}), current.ranks)


def _recompute(current: Plan) -> Choices:
    yield from (_set(current, "model.recompute", choice) for choice in RECOMPUTE[1:])


def _micro(current: Plan) -> Choices:
    batch = current.settings.batch
    micro = batch.micro_size
    if not (batch.local_size or batch.global_size):  # the micro batch is the step's: keep the step as it is
        current = replace(current, settings=_with(current.settings, **{"batch.local_size": micro}))
    yield from (_set(current, "batch.micro_size", size) for size in range(micro - 1, 0, -1) if micro % size == 0)


def _stage(current: Plan) -> Choices:
    yield from (_set(current, "zero.stage", stage) for stage in range(current.settings.zero.stage + 1, 4))


def _ranks(current: Plan) -> Choices:
    for ranks in (current.ranks * times for times in (2, 4, 8)):
        try:
            current.settings.batch.resolve(ranks)
        except UsageError:
            continue
        yield f"{ranks} GPUs", plan(current.settings, ranks)


def _offload_optimizer(current: Plan) -> Choices:
    if current.settings.zero.stage and not current.settings.zero.offload_optimizer:
        yield _set(current, "zero.offload_optimizer", True)


def _offload_param(current: Plan) -> Choices:
    if current.settings.zero.stage == 3 and not current.settings.zero.offload_param:
        yield _set(current, "zero.offload_param", True)

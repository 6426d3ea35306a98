"""Memory and compute for a prefix tuning run; tests/prefix/test_memory.py compares them with PyTorch.

Gradients flow through every block to its prefix, so a frozen base model stores activations too, except tensors that are
needed only for the gradients of its own weights.
"""

from course_lib.checkpoints.number_formats import BYTES, NumberFormat
from course_lib.models.config import ModelConfig
from course_lib.models.memory import LOGIT_BYTES, Sizes


def frozen_sizes(
    shape: ModelConfig,
    encoder: tuple[tuple[int, bool], ...],
    prefix: int,
    micro_batch: int,
    length: int,
    dtype: NumberFormat,
    autocast: bool,
) -> Sizes:
    """Return the sizes of a run that trains `encoder`: (elements, weight decay) each; `length` is that of a sample.

    The frozen base is in `dtype`. With `autocast`, the encoder is in fp32, and so are the norms on a GPU.
    """
    base = tuple(elements for elements, _ in shape.tensors())
    width = BYTES[dtype]
    kept, again = _activations(shape, prefix, micro_batch, length, width, 4 if autocast else width)
    return Sizes(
        trained=encoder,
        frozen=base,
        activations=kept,
        logits=LOGIT_BYTES * micro_batch * length * shape.vocab_size,
        block=again,
        # 4 FLOPs per weight instead of 6, because no gradients are computed for frozen weights.
        flops_per_token=4.0 * (sum(base) - shape.looked_up)
        + 12.0 * shape.num_layers * shape.hidden_size * (length + prefix),
        length=length,
        casts=width * sum(elements for elements, _ in encoder) if autocast else 0,
    )


def _activations(
    shape: ModelConfig, prefix: int, micro_batch: int, length: int, width: int, norm_width: int
) -> tuple[int, int]:
    """Return the memory [bytes] for activations stored by the forward pass, and for one block's backward pass.

    A block stores the inputs to its norms, the queries, keys and values, and the input to the GELU. The keys and values
    include those from the prefix, copied for each sequence. Fused attention also stores its output, its mask and one
    value per query and head. In GPT-2, the queries are a view that keeps the whole QKV tensor in memory. `width` is the
    bytes per element, `norm_width` those in the inputs to the norms.
    """
    neox, tokens, columns = shape.architecture == "gpt-neox", micro_batch * length, prefix + length
    stream, wide = width * tokens * shape.hidden_size, width * tokens * shape.ffn
    rows = tokens * shape.num_attention_heads
    norms = 1 if shape.use_parallel_residual else 2
    kept = norms * stream * norm_width // width + wide
    kept += 2 * stream * columns // length
    core = width * tokens * columns + 4 * rows
    kept += (2 if neox else 4) * stream + core
    # The prefix itself and its gradients.
    own = 2 * width * prefix * 2 * shape.num_layers * shape.hidden_size
    if shape.recompute == "full":
        return shape.num_layers * stream + stream + own, kept - stream + max(2 * wide, core)
    return shape.num_layers * kept + own, max(2 * wide, core)

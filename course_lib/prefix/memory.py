"""Memory and compute of a prefix-tuning run, for the memory planner of chapter 4.

Parameter counts are exact; the sizes of activations and logits come from formulas. tests/prefix/test_memory.py checks
both against PyTorch. Gradients flow through every block to its prefix, so a frozen base keeps activations too. But no
block keeps tensors that only the gradients of its own weights would need.
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
) -> Sizes:
    """Return the sizes of a run that trains an encoder for a frozen base.

    Args:
        shape: settings of the base, with the attention and recomputation of the run.
        encoder: (elements, weight-decayed) for every parameter of the encoder.
        prefix: length of the prefix [positions].
        micro_batch: samples per forward pass.
        length: tokens per sample.
        dtype: number format of weights and activations.
    """
    base = tuple(elements for elements, _ in shape.tensors())
    kept, again = _activations(shape, prefix, micro_batch, length, BYTES[dtype])
    return Sizes(
        trained=encoder,
        frozen=base,
        activations=kept,
        logits=LOGIT_BYTES * micro_batch * length * shape.vocab_size,
        block=again,
        # 4 FLOPs per weight, not 6: a frozen weight has no gradient of its own.
        flops_per_token=4.0 * (sum(base) - shape.looked_up)
        + 12.0 * shape.num_layers * shape.hidden_size * (length + prefix),
        length=length,
    )


def _activations(shape: ModelConfig, prefix: int, micro_batch: int, length: int, width: int) -> tuple[int, int]:
    """Return the bytes that the forward pass keeps, and the additional bytes that one block needs in the backward pass.

    A block keeps the inputs of its norms, the queries, keys and values, and the input of the GELU. The keys and values
    include those of the prefix, copied for each row. Fused attention also keeps its output, its mask and one number per
    row; eager attention keeps its scores. The queries of a GPT-2 are a view that keeps the whole QKV tensor in memory.
    """
    neox, tokens, columns = shape.architecture == "gpt-neox", micro_batch * length, prefix + length
    stream, wide = width * tokens * shape.hidden_size, width * tokens * shape.ffn
    rows = tokens * shape.num_attention_heads
    kept = (1 if shape.use_parallel_residual else 2) * stream + wide
    kept += 2 * stream * columns // length
    if shape.attention == "eager":
        # The softmax of GPT-NeoX is in fp32.
        core = rows * columns * (width + (4 if neox and width < 4 else 0))
        kept += stream + core
    else:
        core = width * tokens * columns + 4 * rows
        kept += (2 if neox else 4) * stream + core
    # The prefix itself and its gradients.
    own = 2 * width * prefix * 2 * shape.num_layers * shape.hidden_size
    if shape.recompute == "full":
        return shape.num_layers * stream + stream + own, kept - stream + max(2 * wide, core)
    return shape.num_layers * kept + own, max(2 * wide, core)

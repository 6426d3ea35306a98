"""Formulas for the training memory of a GPT-2 or GPT-NeoX, and its floating-point operations per token; no torch.

tests/training/test_planner.py compares the formulas for activations and logits with PyTorch's allocations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.checkpoints.number_formats import BYTES, NumberFormat
from course_lib.models.config import ModelConfig

# Tensors of feed-forward width that the GELU keeps: 1 with a fused kernel (gelu_pytorch_tanh, gelu), 4 with gelu_new.
GELU_KEEPS = 1
# Bytes per logit: the fp32 log-softmax and, when the backward pass begins, two gradients of the same size.
LOGIT_BYTES = 12


@dataclass(frozen=True)
class Sizes:
    """The quantities of a model that the memory planner needs, besides the common settings of a run."""

    trained: tuple[tuple[int, bool], ...]  # (elements, whether decayed) per trained parameter, in the model's order
    frozen: tuple[int, ...]  # elements of each parameter that is not trained
    activations: int  # kept by the forward pass of one micro-batch [bytes]
    logits: int  # logits with the loss and its gradients [bytes]
    block: int  # needed by one block in its backward pass, when the logits are already freed [bytes]
    flops_per_token: float  # floating-point operations to train on one token
    length: int  # tokens per sample

    @property
    def parameters(self) -> int:
        """Number of parameters, trained and frozen."""
        return sum(elements for elements, _ in self.trained) + sum(self.frozen)


def tensors(model: ModelConfig) -> Iterator[tuple[int, bool]]:
    """Yields the number of elements of every parameter, and whether weight decay applies to it.

    The parameters come in the order of Hugging Face's model.
    GPT-2 ties its output head to the embedding and has position embeddings. GPT-NeoX has an untied output head and no
    position embeddings.
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
    """The exact number of trainable parameters.

    With a feed-forward layer of width 4·h, GPT-2 has 12·L·h² + 13·L·h + (V + S)·h + 2·h parameters: L layers, hidden
    size h, vocabulary size V, S positions. GPT-NeoX has 2·V in place of V + S.
    """
    return sum(elements for elements, _ in tensors(model))


def flops_per_token(model: ModelConfig, seq_length: int) -> float:
    """Floating-point operations to train on one token: 6·parameters + 12·layers·hidden size·seq_length.

    Counts forward and backward pass, with a multiply-add as two operations and attention over the whole sequence (PaLM,
    arXiv:2204.02311, appendix B). The parameters leave out GPT-NeoX's embedding, which is only looked up. Recomputation
    is not counted, because utilisation measures useful work.
    """
    looked_up = model.vocab_size * model.hidden_size if model.architecture == "gpt-neox" else 0
    return 6.0 * (parameters(model) - looked_up) + 12.0 * model.num_layers * model.hidden_size * seq_length


def gpt_sizes(model: ModelConfig, micro_batch: int, seq_length: int, dtype: NumberFormat) -> Sizes:
    """The sizes of a run that trains all parameters.

    Args:
        model: the settings of the model.
        micro_batch: samples per forward pass.
        seq_length: tokens per sample.
        dtype: number format, a key of BYTES.
    """
    kept = _activations(model, micro_batch, seq_length, BYTES[dtype])
    return Sizes(tuple(tensors(model)), (), *kept, flops_per_token(model, seq_length), seq_length)


def _activations(model: ModelConfig, rows_of_text: int, length: int, width: int) -> tuple[int, int, int]:
    """Bytes of the kept activations, of the logits with the loss, and of one block's extra memory in its backward pass.

    In 16 bits a block keeps 34·s·b·h bytes, with one byte per dropout element, and 5·a·s²·b bytes for the attention
    scores (Korthikanti et al., arXiv:2205.05198). Only eager attention keeps the scores; sdpa and flash_attention_2
    keep one number per row.

    Args:
        model: the settings of the model.
        rows_of_text: samples per forward pass.
        length: tokens per sample.
        width: bytes per element.
    """
    tokens = rows_of_text * length
    stream, wide = tokens * model.hidden_size, tokens * model.ffn
    rows = tokens * model.num_attention_heads
    mask = stream if model.hidden_dropout_prob else 0
    neox, eager = model.architecture == "gpt-neox", model.attention == "eager"
    # GPT-NeoX computes the softmax in fp32 and casts the result to the model's format.
    softmax = 4 if neox else width
    read = width + 1 if model.attention_probs_dropout_prob else width if softmax != width else 0
    core = rows * length * (softmax + read) if eager else 4 * rows
    # q, k, v and the input of the projection.
    attention = 4 * width * stream + mask
    # GPT-NeoX also keeps the rotated q and k. v is a view of the tensor of unrotated q, k and v, which then stays in
    # memory unless eager attention copies v. Fused attention keeps its output besides the projection's copy.
    if neox:
        attention += 2 * width * stream
        core += (-2 if eager else 1) * width * stream
    # Inputs of the two norms and of the matrices after them; with a parallel residual both norms share one input.
    reads = 3 if model.use_parallel_residual else 4
    rest = reads * width * stream + (GELU_KEEPS + 1) * width * wide + mask
    block = rest + attention + core
    kept = {"none": block, "core_attn": rest + attention, "full_attn": rest, "full": width * stream}[model.recompute]
    # Outside the blocks: embedding, last norm, output head.
    ends = 2 * width * stream + mask
    # One block recomputed, and the gradients of its widest tensors.
    again = block - kept + max(2 * width * wide, core)
    return model.num_layers * kept + ends, LOGIT_BYTES * tokens * model.vocab_size, again

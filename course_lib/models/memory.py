"""What of a GPT-2 or a GPT-NeoX lies in memory while it trains, and how much work a token is. No torch.

Activations and logits are formulas: tests/training/test_planner.py holds them against PyTorch's allocations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.models.config import ModelConfig

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}  # of a weight, an activation, a gradient
GELU_KEEPS = 1  # tensors of feed-forward width kept for the GELU: 1 by the fused kernels (gelu_pytorch_tanh, gelu), 4 by gelu_new
LOGIT_BYTES = 12  # fp32 log-softmax, and two gradients of its size when the backward pass begins


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


def gpt_sizes(model: ModelConfig, micro_batch: int, seq_length: int, dtype: str) -> Sizes:
    """The sizes of a run that trains all parameters on micro batches [micro_batch, seq_length] in a number format."""
    kept = _activations(model, micro_batch, seq_length, BYTES[dtype])
    return Sizes(tuple(tensors(model)), (), *kept, flops_per_token(model, seq_length), seq_length)


def _activations(model: ModelConfig, rows_of_text: int, length: int, width: int) -> tuple[int, int, int]:
    """What the forward pass keeps, the logits with their loss, and what one block needs in the backward pass besides [bytes].

    Korthikanti et al. (arXiv:2205.05198): a block keeps 34·s·b·h bytes in 16 bit (dropout a byte an element) and the scores, 5·a·s²·b.
    Eager attention keeps those; sdpa and flash_attention_2 keep a number per row instead.
    """
    tokens = rows_of_text * length
    stream, wide = tokens * model.hidden_size, tokens * model.ffn
    rows = tokens * model.num_attention_heads
    mask = stream if model.hidden_dropout_prob else 0
    neox, eager = model.architecture == "gpt-neox", model.attention == "eager"
    softmax = 4 if neox else width  # GPT-NeoX's is in fp32, read in the model's format
    read = width + 1 if model.attention_probs_dropout_prob else width if softmax != width else 0
    core = rows * length * (softmax + read) if eager else 4 * rows
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

"""Settings for GPT-2 and GPT-NeoX models, and the memory they need, without torch (tests/training/test_planner.py)."""

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.checkpoints.number_formats import BYTES, NumberFormat
from course_lib.models.memory import LOGIT_BYTES, Sizes
from course_lib.settings.config import STRICT, setting

# Tensors of feed-forward width that GELU stores: 1 with a fused kernel (gelu_pytorch_tanh, gelu), 4 with gelu_new.
GELU_KEEPS = 1


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """Architecture and sizes of a GPT-2 or GPT-NeoX model: pre-LayerNorm, biases in every layer but the output head."""

    architecture: Literal["gpt2", "gpt-neox"] = setting(
        "gpt2", "gpt2: learned positions, tied output head; gpt-neox: rotary positions, untied output head"
    )
    vocab_size: int = setting(50_304, "rows of the embedding, at least the tokenizer's entries", ge=1, le=2_000_000)
    hidden_size: int = setting(768, "width of the residual stream", ge=1, le=1 << 16)
    num_layers: int = setting(12, "transformer blocks", ge=1, le=1024)
    num_attention_heads: int = setting(12, "attention heads; must divide hidden_size", ge=1, le=1024)
    ffn_hidden_size: int | None = setting(None, "feed-forward width; unset: 4 × hidden_size", ge=1, le=1 << 18)
    max_position_embeddings: int = setting(1024, "longest sequence [tokens]; learned by gpt2", ge=1, le=1 << 20)
    rotary_pct: float = setting(1.0, "gpt-neox: share of a head's dimensions with rotary positions", gt=0, le=1)
    use_parallel_residual: bool = setting(False, "gpt-neox: attention and feed-forward layer read the same input")
    hidden_dropout_prob: float = setting(0.1, "dropout after embedding, attention and feed-forward layer", ge=0, lt=1)
    attention_probs_dropout_prob: float = setting(0.1, "dropout of the attention weights", ge=0, lt=1)
    initializer_range: float = setting(0.02, "standard deviation of the initial weights", gt=0, le=1)
    recompute: Literal["none", "core_attn", "full_attn", "full"] = setting(
        "none",
        "what the backward pass recomputes instead of keeping: nothing, softmax(QKᵀ)V, the attention, the block",
    )
    attention: Literal["eager", "sdpa", "flash_attention_2"] = setting(
        "sdpa", "attention kernel; sdpa uses the device's fused kernel"
    )

    @model_validator(mode="after")
    def _together(self) -> "ModelConfig":
        if self.hidden_size % self.num_attention_heads:
            wrong = f"model.num_attention_heads: {self.num_attention_heads} is not allowed"
            raise ValueError(f"{wrong}: must divide model.hidden_size ({self.hidden_size})")
        for name, default in (("rotary_pct", 1.0), ("use_parallel_residual", False)):
            if self.architecture == "gpt2" and (value := getattr(self, name)) != default:
                raise ValueError(f"model.{name}: {value} is not allowed: needs model.architecture gpt-neox")
        if self.architecture == "gpt-neox" and (self.rotated < 2 or self.rotated % 2):
            raise ValueError(
                f"model.rotary_pct: {self.rotary_pct} is not allowed: rotates {self.rotated} of a head's "
                f"{self.hidden_size // self.num_attention_heads} dimensions, must be an even number of them, at least 2"
            )
        return self

    @property
    def rotated(self) -> int:
        """Dimensions per head with rotary positions, rounded down as in the Hugging Face GPT-NeoX code."""
        return int(self.hidden_size // self.num_attention_heads * self.rotary_pct)

    @property
    def ffn(self) -> int:
        """Feed-forward width: ffn_hidden_size, or 4 × hidden_size if unset."""
        return self.ffn_hidden_size or 4 * self.hidden_size

    @property
    def looked_up(self) -> int:
        """Number of elements in an embedding that is only looked up, which is that of GPT-NeoX."""
        return self.vocab_size * self.hidden_size if self.architecture == "gpt-neox" else 0

    def tensors(self) -> Iterator[tuple[int, bool]]:
        """Yield the elements of each parameter in Hugging Face's order, and whether weight decay applies to it."""
        h, f, neox = self.hidden_size, self.ffn, self.architecture == "gpt-neox"
        norm, embedding = [(h, False), (h, False)], (self.vocab_size * h, True)
        attention = [(3 * h * h, True), (3 * h, False), (h * h, True), (h, False)]  # QKV, projection
        feed_forward = [(h * f, True), (f, False), (f * h, True), (h, False)]
        block = [*norm, *norm, *attention, *feed_forward] if neox else [*norm, *attention, *norm, *feed_forward]
        yield from [embedding] if neox else [embedding, (self.max_position_embeddings * h, True)]
        yield from block * self.num_layers
        yield from [*norm, embedding] if neox else norm

    def parameters(self) -> int:
        """Return the exact number of trainable parameters."""
        return sum(elements for elements, _ in self.tensors())

    def flops_per_token(self, seq_length: int) -> float:
        """Return the operations for training on one token: 6·parameters + 12·layers·hidden size·seq_length.

        A multiply-add counts as two, attention over the whole sequence (PaLM, arXiv:2204.02311, appendix B). An
        embedding that is only looked up, as in GPT-NeoX, does not count, nor does recomputation.
        """
        return 6.0 * (self.parameters() - self.looked_up) + 12.0 * self.num_layers * self.hidden_size * seq_length

    def matrices(self) -> tuple[tuple[int, ...], ...]:
        """Return the elements of the matrices of the blocks, which Muon updates, in one tuple for each shape."""
        h, f = self.hidden_size, self.ffn
        return tuple((elements,) * self.num_layers for elements in (3 * h * h, h * h, h * f, f * h))

    def sizes(self, micro_batch: int, seq_length: int, dtype: NumberFormat, autocast: bool) -> Sizes:
        """Return the sizes for a run that trains all parameters on `micro_batch` samples at a time.

        The weights are in `dtype` or, with `autocast`, in fp32; then only the matrix products are in `dtype`.
        """
        width = BYTES[dtype]
        activations, logits, block = self._activations(micro_batch, seq_length, width, 4 if autocast else width)
        casts = width * self._cast_after_forward() if autocast else 0
        if casts and self.recompute != "none":
            # The backward pass casts the weights of a block again.
            block += width * sum(map(max, self.matrices()))
        return Sizes(
            trained=tuple(self.tensors()),
            frozen=(),
            activations=activations,
            logits=logits,
            block=block,
            flops_per_token=self.flops_per_token(seq_length),
            length=seq_length,
            casts=casts,
            matrices=self.matrices(),
        )

    def _cast_after_forward(self) -> int:
        """Return the elements of the weights whose casts autograd stores: the head's, and those of the matrices.

        A part of a block that is recomputed stores none.
        """
        attention, feed_forward = self.matrices()[:2], self.matrices()[2:]
        stored = {"none": attention + feed_forward, "core_attn": attention + feed_forward, "full_attn": feed_forward}
        head = self.vocab_size * self.hidden_size
        return head + sum(sum(elements) for elements in stored.get(self.recompute, ()))

    def _activations(self, micro_batch: int, length: int, width: int, residual_width: int) -> tuple[int, int, int]:
        """Return the bytes for stored activations, logits with the loss, and one block's backward pass.

        In 16 bits, a block stores 34·s·b·h bytes, with one byte per dropout element, and 5·a·s²·b bytes for the
        attention scores (Korthikanti et al., arXiv:2205.05198), of which only eager attention stores more than one
        value per query and head. `width` is the bytes per element in matrix products, `residual_width` those in the
        residual stream, which autocast leaves in fp32.
        """
        tokens = micro_batch * length
        stream, wide = tokens * self.hidden_size, tokens * self.ffn
        rows = tokens * self.num_attention_heads
        mask = stream if self.hidden_dropout_prob else 0
        neox, eager = self.architecture == "gpt-neox", self.attention == "eager"
        # GPT-NeoX and autocast compute the softmax in fp32; the result is cast to the model's dtype.
        softmax = 4 if neox else residual_width
        read = width + 1 if self.attention_probs_dropout_prob else width if softmax != width else 0
        core = rows * length * (softmax + read) if eager else 4 * rows
        # q, k, v and the input to the projection.
        attention = 4 * width * stream + mask
        # GPT-NeoX also stores the rotated q and k. v is a view of the tensor with the unrotated q, k and v, which stays
        # in memory unless eager attention copies v. Fused attention also stores its output.
        if neox:
            # Under autocast, q and k are rotated in fp32; what softmax(QKᵀ)V reads is cast again.
            attention += 2 * (residual_width if self.recompute == "core_attn" else width) * stream
            core += (-2 if eager else 1) * width * stream
        # Inputs to the two norms and to the matrices after them; with a parallel residual, both norms share an input.
        norms = 1 if self.use_parallel_residual else 2
        rest = (norms * residual_width + 2 * width) * stream + (GELU_KEEPS + 1) * width * wide + mask
        block = rest + attention + core
        # Recomputation stores the input to what it recomputes, which for the attention is the output of a norm.
        input_of_attention = (residual_width - width) * stream
        kept_by = {
            "none": block,
            "core_attn": rest + attention,
            "full_attn": rest + input_of_attention,
            "full": residual_width * stream,
        }
        kept = kept_by[self.recompute]
        # Outside the blocks: embedding, last norm, output head.
        ends = (residual_width + width) * stream + mask
        # The recomputed activations of one block, and the gradients of its widest tensors.
        again = block - kept + max(2 * width * wide, core)
        return self.num_layers * kept + ends, LOGIT_BYTES * tokens * self.vocab_size, again

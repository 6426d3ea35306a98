"""Settings for GPT-2 and GPT-NeoX models. This module does not import torch."""

from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.settings.config import STRICT, setting


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

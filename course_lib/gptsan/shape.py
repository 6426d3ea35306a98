"""Settings for the shape of a new GPTSAN."""

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting


@dataclass(frozen=True, config=STRICT)
class ShapeConfig:
    """The shape of a new GPTSAN; the names are those in its config.json, the defaults those of the published base."""

    vocab_size: int = setting(
        36_000,
        "vocabulary size (rows of the embedding); at least the number of the tokenizer's entries",
        ge=1,
        le=2_000_000,
    )
    max_position_embeddings: int = setting(1280, "number of learned positions [tokens]", ge=1, le=1 << 20)
    d_model: int = setting(1024, "width of the residual stream", ge=1, le=1 << 16)
    d_ff: int = setting(8192, "hidden width of an expert", ge=1, le=1 << 18)
    d_ext: int = setting(4096, "hidden width of an extra layer's feed-forward part", ge=1, le=1 << 18)
    d_spout: int = setting(128, "width of the spout; 0: no spout", ge=0, le=1 << 16)
    num_switch_layers: int = setting(10, "number of switch layers (layers with experts)", ge=0, le=1024)
    num_ext_layers: int = setting(
        0, "number of extra layers (layers without experts) on top of the switch layers", ge=0, le=1024
    )
    num_heads: int = setting(16, "number of attention heads; must divide d_model", ge=1, le=1024)
    num_experts: int = setting(16, "number of experts in a switch layer", ge=1, le=4096)

    embedding_init_std: float = setting(0.02, "standard deviation of new embeddings", gt=0, le=10)
    spout_init_std: float = setting(
        0.01,
        "standard deviation of a new spout's weights; below 1/√d_spout the signal shrinks in each of its eight layers",
        gt=0,
        le=10,
    )

    @model_validator(mode="after")
    def _heads(self) -> "ShapeConfig":
        if self.d_model % self.num_heads:
            raise ValueError(
                f"model.shape.num_heads: {self.num_heads} is not allowed: "
                f"must divide model.shape.d_model ({self.d_model})"
            )
        return self

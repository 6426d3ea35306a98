"""Shape settings for a new GPTSAN model, and the names and sizes of its parameters.

This module does not import torch.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.errors import CourseError, UsageError
from course_lib.files import read_json
from course_lib.settings.config import STRICT, build, setting

MODEL_TYPE = "gptsan-japanese"
EMBEDDINGS = ("model.embed_tokens.weight", "model.position_embeddings.weight")
EXTRA_POSITIONS = "model.extra_position_embeddings.weight"
# Number of tanh layers before the output projection in the spout network.
SPOUT_LAYERS = 8
# Maximum number of layers of one kind.
LAYERS = 1024
# Output projection in the spout network; its shape depends on the number of layers in the model.
SPOUT_OUT = f"model.spout.{2 * SPOUT_LAYERS}.weight"


@dataclass(frozen=True, config=STRICT)
class ShapeConfig:
    """Shape of a new GPTSAN model. Names match its config.json; defaults match the published base model."""

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
    num_switch_layers: int = setting(10, "number of switch layers (layers with experts)", ge=0, le=LAYERS)
    num_ext_layers: int = setting(
        0, "number of extra layers (layers without experts) on top of the switch layers", ge=0, le=LAYERS
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

    @property
    def num_layers(self) -> int:
        """Total number of switch layers and extra layers."""
        return self.num_switch_layers + self.num_ext_layers

    def tensors(self) -> Iterator[tuple[str, int]]:
        """Yield (name, number of elements) for every parameter, in the same order as GPTSanForCausalLM.

        The head has no parameters of its own: its weight is tied to the embedding and its bias is a buffer.
        """
        h, layers = self.d_model, self.num_layers
        yield from zip(EMBEDDINGS, (self.vocab_size * h, self.max_position_embeddings * h), strict=True)
        for layer in range(layers):
            attention, feed = f"model.blocks.{layer}.self_attn", f"model.blocks.{layer}.feed_forward"
            yield from ((f"{attention}.self_attn.{part}_proj.weight", h * h) for part in ("q", "k", "v", "out"))
            yield from _with_bias(f"{attention}.norm", h, h)
            if layer < self.num_switch_layers:
                yield f"{feed}.mlp.router.classifier.weight", self.num_experts * h
                experts = [f"{feed}.mlp.experts.expert_{expert}" for expert in range(self.num_experts)]
                yield from ((f"{expert}.{part}.weight", h * self.d_ff) for expert in experts for part in ("wi", "wo"))
                yield f"{feed}.soft_bypass_mlp.weight", h * h
            else:
                yield from _with_bias(f"{feed}.mlp.wi", h * self.d_ext, self.d_ext)
                yield from _with_bias(f"{feed}.mlp.wo", h * self.d_ext, h)
            yield from _with_bias(f"{feed}.norm", h, h)
        if self.num_ext_layers:
            yield EXTRA_POSITIONS, self.max_position_embeddings * h
        yield from _with_bias("model.last_project", h * h, h)
        if self.d_spout:
            yield from ((f"model.spout.{2 * index}.weight", self.d_spout**2) for index in range(SPOUT_LAYERS))
            yield SPOUT_OUT, self.d_spout * layers * 2 * h


def _with_bias(name: str, weight: int, bias: int) -> Iterator[tuple[str, int]]:
    yield from ((f"{name}.weight", weight), (f"{name}.bias", bias))


def read_shape(folder: Path) -> tuple[ShapeConfig, dict[str, Any]]:
    """Return the model shape from the config.json in a GPTSAN folder, and the full contents of that file.

    Raises CourseError if config.json is missing or is not a valid GPTSAN configuration.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise CourseError(f"{folder}: not a GPTSAN folder: config.json is missing")
    content = read_json(path)
    if content.get("model_type") != MODEL_TYPE:
        raise CourseError(f"{path}: not a GPTSAN: model_type {content.get('model_type')!r}, expected {MODEL_TYPE!r}")
    sizes = [field.name for field in fields(ShapeConfig) if field.type is int]
    try:
        known = {name: content[name] for name in sizes if name in content}
        return build(ShapeConfig, known, where=str(path)), content
    except UsageError as error:
        # The invalid value comes from a file, not from the user's settings.
        raise CourseError(str(error)) from error

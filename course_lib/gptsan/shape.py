"""Shape of a GPTSAN model: settings of a new one, or read from a folder. Needs neither torch nor transformers."""

from dataclasses import fields
from pathlib import Path

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
class GPTSanShape:
    """Shape of a GPTSAN model. Names match its config.json; defaults match the published base model.

    A YAML file sets it as `model.shape`; transformers gets it as a part of GPTSanConfig (hf_config.py).
    """

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
    num_switch_layers: int = setting(10, "number of switch layers (layers with experts)", ge=1, le=LAYERS)
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
    def _heads(self) -> "GPTSanShape":
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


def read_shape(folder: Path) -> GPTSanShape:
    """Return the model shape from the config.json in a GPTSAN folder."""
    path = folder / "config.json"
    if not path.is_file():
        raise CourseError(f"{folder}: not a GPTSAN folder: config.json is missing")
    content = read_json(path)
    if content.get("model_type") != MODEL_TYPE:
        raise CourseError(f"{path}: not a GPTSAN: model_type {content.get('model_type')!r}, expected {MODEL_TYPE!r}")
    try:
        names = content.keys() & {field.name for field in fields(GPTSanShape)}
        return build(GPTSanShape, {name: content[name] for name in names}, where=str(path))
    except UsageError as error:
        # The invalid value comes from a file, not from the user's settings.
        raise CourseError(str(error)) from error

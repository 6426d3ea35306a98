"""A GPTSAN in the format of transformers: its configuration class, and config.json and weights read from a folder."""

from dataclasses import asdict, fields, make_dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from transformers import PreTrainedConfig

from course_lib.checkpoints import weight_files
from course_lib.errors import CourseError, one_line
from course_lib.files import read_json
from course_lib.gptsan.shape import EMBEDDINGS, MODEL_TYPE, GPTSanShape, read_shape
from course_lib.settings.config import build

# The fields of GPTSanShape with its defaults. They are not frozen, because transformers assigns to them.
_ShapeFields: Any = make_dataclass(
    "_ShapeFields", [(name, Any, value) for name, value in asdict(GPTSanShape()).items()]
)


@strict
class GPTSanConfig(PreTrainedConfig, _ShapeFields):  # type: ignore[misc]
    """Configuration of a GPTSAN model in transformers: the fields of GPTSanShape and those below.

    The defaults match the published 2.8-billion-parameter model. Other keys in the published file have no effect here:
    the router computes in fp32 without a bias, weights begin as in tanreinama/GPTSAN, token types mark the prefix, and
    a full expert gives 0 as in the original code (in the transformers port, x · router probability).
    """

    model_type = MODEL_TYPE
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    }

    layer_norm_epsilon: float = 1e-5
    use_cache: bool = True
    tie_word_embeddings: bool = True
    separator_token_id: int | None = 35998
    bos_token_id: int | None = None
    pad_token_id: int | None = 35995
    eos_token_id: int | list[int] | None = 35999

    # The capacity of an expert is a factor times an even share of a group of about 1024 tokens from the batch.
    train_capacity_factor: float | int = 1.25
    eval_capacity_factor: float | int = 2.0
    router_jitter_noise: float | int = 0.0  # in training: router input times noise from 1 ± this; original code: 0.01
    router_balance_coef: float | int = 1e-2

    @property
    def shape(self) -> GPTSanShape:
        """The shape alone. Raises UsageError if one of its values is not allowed."""
        return build(GPTSanShape, {field.name: getattr(self, field.name) for field in fields(GPTSanShape)})

    def validate_shape(self) -> None:
        """Raise UsageError if a value of the shape is not allowed; `strict` calls this for each new configuration."""
        _ = self.shape

    @property
    def num_layers(self) -> int:
        """Total number of switch layers and extra layers."""
        layers: int = self.num_switch_layers + self.num_ext_layers
        return layers

    def __post_init__(self, **others: Any) -> None:
        # The published config.json contains num_layers, which is a property here.
        others.pop("num_layers", None)
        super().__post_init__(**others)


def read_config(source: Path) -> GPTSanConfig:
    """Read the configuration from a GPTSAN folder."""
    read_shape(source)
    path = source / "config.json"
    try:
        config: GPTSanConfig = GPTSanConfig.from_dict(read_json(path))
    except Exception as error:
        # transformers passes on any exception that its validators raise.
        raise CourseError(f"{path}: not a configuration of a GPTSAN: {one_line(error)}") from error
    return config


def require_fitting(source: Path, config: GPTSanConfig) -> None:
    """Raise CourseError if a folder has fewer weights than experts, or an output layer that is not the embedding."""
    stored = weight_files.by_name(source)
    experts = config.num_switch_layers * config.num_experts
    if experts > len(stored):
        raise CourseError(f"{source}: config.json says {experts} experts, the weights are {len(stored)} tensors")
    head, embedding = stored.get("lm_head.weight"), stored.get(EMBEDDINGS[0])
    if head is not None and embedding is not None and not torch.equal(head.float(), embedding.float()):
        raise CourseError(f"{source}: lm_head.weight is not the embedding; allowed: a GPTSAN whose output layer is")


def read_weights(source: Path) -> dict[str, Tensor]:
    """Return the weights in a GPTSAN folder by name, without the tied head; each is read on demand.

    The transformers converter names the spout weights `sqout`; they are returned under the current name, `spout`.
    """
    stored = weight_files.by_name(source).items()
    return {name.replace(".sqout.", ".spout."): weight for name, weight in stored if name != "lm_head.weight"}

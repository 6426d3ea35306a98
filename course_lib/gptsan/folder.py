"""A GPTSAN model on disk: its configuration, its weights, and the tensors that a configuration needs."""

from pathlib import Path

import torch

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.weight_files import Weight
from course_lib.errors import CourseError, one_line
from course_lib.files import read_json
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.shape import read_shape

# Tied to the embedding, so it is written only once, under the name of the embedding.
HEAD = "lm_head.weight"


def read_config(source: Path) -> GPTSanConfig:
    """Read the configuration from a GPTSAN folder."""
    read_shape(source)
    path = source / "config.json"
    try:
        config: GPTSanConfig = GPTSanConfig.from_dict(read_json(path))
    except Exception as error:
        # transformers passes on any exception that its validators raise.
        raise CourseError(f"{path}: not a configuration of a GPTSAN: {one_line(error)}") from error
    if not config.tie_word_embeddings:
        raise CourseError(f"{path}: tie_word_embeddings is false; a GPTSAN uses its embedding as head")
    return config


def read_weights(source: Path) -> dict[str, Weight]:
    """Return the weights in a GPTSAN folder by name, without the tied head; each is read on demand.

    The transformers converter names the spout weights `sqout`; they are returned under the current name, `spout`.
    """
    stored = weight_files.by_name(source).items()
    return {name.replace(".sqout.", ".spout."): weight for name, weight in stored if name != HEAD}


def tensors_of(config: GPTSanConfig) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return a model's tensors by name, without data and without the tied head, and the names of its parameters."""
    from course_lib.gptsan.model import GPTSanForCausalLM

    with torch.device("meta"):
        model = GPTSanForCausalLM(config)
    tensors = {name: value for name, value in model.state_dict().items() if name != HEAD}
    return tensors, [name for name, _ in model.named_parameters() if name in tensors]

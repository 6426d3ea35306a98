"""What is particular to a model family: its names, its weights, and its settings in a config.json of Hugging Face."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from course_lib.config import build
from course_lib.models.config import ModelConfig


@dataclass(frozen=True)
class Family:
    """One family; gpt2.py and gpt_neox.py describe theirs, families.py lists them."""

    architecture: Literal["gpt2", "gpt-neox"]  # in the settings
    model_type: str  # in a config.json
    title: str
    # Key of the settings → keys of a config.json. A model's settings are read from the first of them.
    keys: Mapping[str, tuple[str, ...]]
    # What a config.json of this course has besides.
    constants: Callable[[ModelConfig], dict[str, Any]]
    embedding: str  # name of the embedding's weight
    blocks: str  # path of the blocks in the model

    def renamed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings under the keys of a config.json; a key that only the file has stays as it is."""
        return {theirs: value for ours, value in settings.items() for theirs in self.keys.get(ours, (ours,))}

    def hf_values(self, model: ModelConfig) -> dict[str, Any]:
        """The values of a config.json for the settings of a model."""
        return self.renamed({key: getattr(model, key) for key in self.keys}) | self.constants(model)

    def from_hf(self, content: Mapping[str, Any], path: Path) -> ModelConfig:
        """The settings of the model in a config.json, as far as its memory depends on them.

        Raises UsageError naming `path` for a value that is not allowed.
        """
        known = {ours: content[names[0]] for ours, names in self.keys.items() if content.get(names[0]) is not None}
        return build(ModelConfig, known | {"architecture": self.architecture}, where=str(path))

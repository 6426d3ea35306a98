"""Description of a model family: its names, its weights, and the keys of its settings in a Hugging Face config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from course_lib.models.config import ModelConfig
from course_lib.settings.config import build


@dataclass(frozen=True)
class Family:
    """A model family. gpt2.py and gpt_neox.py each define one; families.py lists them."""

    architecture: Literal["gpt2", "gpt-neox"]  # name in the settings
    model_type: str  # name in config.json
    title: str
    # Settings key → config.json keys. The first of them is used when settings are read from config.json.
    keys: Mapping[str, tuple[str, ...]]
    # Additional values that this library writes to config.json.
    constants: Callable[[ModelConfig], dict[str, Any]]
    embedding: str  # name of the embedding weight
    blocks: str  # module path of the blocks

    def renamed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings under their config.json keys; a key without a counterpart is kept."""
        return {theirs: value for ours, value in settings.items() for theirs in self.keys.get(ours, (ours,))}

    def hf_values(self, model: ModelConfig) -> dict[str, Any]:
        """Return the config.json values for a model's settings."""
        return self.renamed({key: getattr(model, key) for key in self.keys}) | self.constants(model)

    def from_hf(self, content: Mapping[str, Any], path: Path) -> ModelConfig:
        """Return the settings in a config.json that affect the model's memory use."""
        known = {ours: content[names[0]] for ours, names in self.keys.items() if content.get(names[0]) is not None}
        return build(ModelConfig, known | {"architecture": self.architecture}, where=str(path))

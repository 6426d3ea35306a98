"""The settings of an imported model that a FasterTransformer folder may not record, and where each comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from transformers.activations import ACT2FN

from course_lib.errors import CourseError, UsageError
from course_lib.serving import reader
from course_lib.serving.layout import CONVERSION, SUMMED, Family, FtConfig


@dataclass(frozen=True)
class Given:
    """Settings from the user, for what a folder does not record; None if not given."""

    activation: str | None = None  # name in transformers, such as gelu_new
    layer_norm_eps: float | None = None
    rope_theta: float | None = None  # GPT-NeoX: base of the rotary wavelengths
    max_positions: int | None = None  # GPT-NeoX: context length [tokens]
    biases_divided_by: int | None = None  # GPT-NeoX: 1 or N
    inter_size: int | None = None  # inner size I, if config.ini has a wrong one


# Field of Given → key in config.json
KEYS: dict[Family, dict[str, str]] = {
    "gptneox": {
        "activation": "hidden_act", "layer_norm_eps": "layer_norm_eps", "rope_theta": "rope_theta",
        "max_positions": "max_position_embeddings",
    },
    "gpt": {"activation": "activation_function", "layer_norm_eps": "layer_norm_epsilon"},
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A setting of the model, and where it comes from: an option, conversion.json, config.ini or the default."""

    value: Any
    source: str


def settings_of(config: FtConfig, conversion: Mapping[str, Any], given: Given) -> dict[str, Setting]:
    """Return the settings that config.ini may lack, by their keys in config.json.

    Raises UsageError if an option is not allowed for the model.
    """
    options = {}
    for field, key in KEYS[config.family].items():
        if (value := getattr(given, field)) is not None:
            options[key] = value
    for field in KEYS["gptneox"].keys() - KEYS[config.family].keys():
        if getattr(given, field) is not None:
            raise UsageError(f"{_option(field)}: not allowed for a GPT-2; allowed for a GPT-NeoX")
    for field in ("layer_norm_eps", "rope_theta", "max_positions"):
        value = getattr(given, field)
        if value is not None and not 0 < value < inf:
            raise UsageError(f"{_option(field)} {value}: allowed: a number above 0")
    if given.activation is not None and given.activation not in ACT2FN:
        raise UsageError(f"--activation {given.activation}: allowed: {', '.join(sorted(ACT2FN))}")
    recorded = conversion.get("not_in_the_format", {})
    # Later sources override earlier ones, as in the reader
    sources: list[tuple[str, Mapping[str, Any]]] = [
        ("default", reader.LACKS[config.family]),
        ("config.ini", reader.settings_in_ini(config)),
        (CONVERSION, {key: value for key, value in recorded.items() if key in reader.LACKS[config.family]}),
        ("option", options),
    ]
    return {key: Setting(value, name) for name, values in sources for key, value in values.items()}


def _option(field: str) -> str:
    """Return the command-line option for a field of Given."""
    return "--" + field.replace("_", "-")


def divisor_of(folder: Path, config: FtConfig, conversion: Mapping[str, Any], given: Given) -> int:
    """Return the number by which the two biases of row-parallel products were divided.

    Raises UsageError if the number is neither given nor recorded, and CourseError if the recorded number is impossible.
    """
    value, recorded = given.biases_divided_by, conversion.get("biases_divided_by")
    allowed = sorted({1, config.ranks if config.family == "gptneox" else 1})
    if value is not None and value not in allowed:
        choices = f"1 or {allowed[1]}" if len(allowed) > 1 else "1"
        raise UsageError(f"--biases-divided-by {value}: allowed: {choices}")
    if recorded is not None and recorded not in allowed:
        raise CourseError(f"{folder.parent / CONVERSION}: biases_divided_by = {recorded}: {config.ranks} ranks")
    value = recorded if value is None else value
    if value is None and len(allowed) > 1 and not config.parallel_residual:
        first, second = SUMMED
        raise UsageError(
            f"--biases-divided-by: not given, and {folder.parent} has no {CONVERSION} that records it; allowed: "
            f"{config.ranks} (huggingface_gptneox_convert.py divides {first} and {second} by it), 1 (undivided)"
        )
    # With parallel residual, every rank adds the biases, so converters divide them
    return int(value or (config.ranks if config.parallel_residual else 1))

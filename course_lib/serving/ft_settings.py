"""The settings of a model that a FasterTransformer folder may not record, and where each comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from transformers.activations import ACT2FN

from course_lib.errors import CourseError, UsageError
from course_lib.files import read_json
from course_lib.serving.layout import CONVERSION, Family, FtConfig

# Settings that the format cannot store: key in config.json → field of Given, and the default of the model family
LACKS: dict[Family, dict[str, tuple[str, Any]]] = {
    "gptneox": {
        "hidden_act": ("activation", "gelu"),
        "layer_norm_eps": ("layer_norm_eps", 1e-5),
        "rope_theta": ("rope_theta", 10000.0),
        "max_position_embeddings": ("max_positions", 2048),
    },
    "gpt": {"activation_function": ("activation", "gelu_new"), "layer_norm_epsilon": ("layer_norm_eps", 1e-5)},
}
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}  # activation_type in config.ini → name in transformers


@dataclass(frozen=True)
class Given:
    """Settings from the user, for what a folder does not record; None if not given."""

    activation: str | None = None  # name in transformers, such as gelu_new
    layer_norm_eps: float | None = None
    rope_theta: float | None = None  # GPT-NeoX: base of the rotary wavelengths
    max_positions: int | None = None  # GPT-NeoX: context length [tokens]
    biases_divided_by: int | None = None  # GPT-NeoX: 1 or N
    inter_size: int | None = None  # inner size I, if config.ini has a wrong one


@dataclass(frozen=True)
class Setting:
    """A setting of the model, and where it comes from: an option, conversion.json, config.ini or the default."""

    value: Any
    source: str


def read_conversion(folder: Path) -> dict[str, Any]:
    """Return the folder's conversion.json, or an empty dict without it. Raises CourseError if it is damaged."""
    path = folder / CONVERSION
    content = read_json(path) if path.is_file() else {}
    known = content.get("not_in_the_format", {}), content.get("biases_divided_by", 1)
    if not isinstance(known[0], dict) or not isinstance(known[1], int):
        raise CourseError(f"{path}: not written by `course ft export`")
    return content


def settings_of(config: FtConfig, conversion: Mapping[str, Any], given: Given = Given()) -> dict[str, Setting]:
    """Return the settings that config.ini may lack, by their keys in config.json."""
    lacks = LACKS[config.family]
    for field in ("layer_norm_eps", "rope_theta", "max_positions"):
        value, option = getattr(given, field), "--" + field.replace("_", "-")
        if value is not None and config.family == "gpt" and field != "layer_norm_eps":
            raise UsageError(f"{option}: not allowed for a GPT-2; allowed for a GPT-NeoX")
        if value is not None and not 0 < value < inf:
            raise UsageError(f"{option} {value}: allowed: a number above 0")
    if given.activation is not None and given.activation not in ACT2FN:
        raise UsageError(f"--activation {given.activation}: allowed: {', '.join(sorted(ACT2FN))}")
    in_ini: dict[str, Any] = {}
    if config.family == "gpt":
        activation = (config.activation or "").lower()
        if activation and activation not in ACTIVATIONS:
            raise CourseError(f"config.ini: activation_type = {config.activation}: allowed: Gelu, Relu")
        in_ini = {"layer_norm_epsilon": config.layernorm_eps, "activation_function": ACTIVATIONS.get(activation)}
    recorded = conversion.get("not_in_the_format", {})
    # Later sources override earlier ones
    sources: dict[str, dict[str, Any]] = {
        "default": {key: default for key, (_, default) in lacks.items()},
        "config.ini": in_ini,
        CONVERSION: {key: recorded.get(key) for key in lacks},
        "option": {key: getattr(given, field) for key, (field, _) in lacks.items()},
    }
    return {
        key: Setting(value, name)
        for name, values in sources.items()
        for key, value in values.items()
        if value is not None
    }


def divisor_of(folder: Path, config: FtConfig, conversion: Mapping[str, Any], given: int | None = None) -> int | None:
    """Return the number by which the two biases of row-parallel products were divided; None if nothing says it."""
    recorded = conversion.get("biases_divided_by")
    allowed = sorted({1, config.ranks if config.family == "gptneox" else 1})
    if given is not None and given not in allowed:
        raise UsageError(f"--biases-divided-by {given}: allowed: {' or '.join(map(str, allowed))}")
    if recorded is not None and recorded not in allowed:
        raise CourseError(f"{folder.parent / CONVERSION}: biases_divided_by = {recorded}: {config.ranks} ranks")
    if given or recorded:
        return given or recorded
    # With parallel residual, every rank adds the biases, so converters divide them
    return config.ranks if config.parallel_residual else None if len(allowed) > 1 else 1

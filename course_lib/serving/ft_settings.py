"""What the reader and the import know about a FasterTransformer folder: config.ini, and what that does not store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.activations import ACT2FN

from course_lib.errors import CourseError, UsageError
from course_lib.files import read_record
from course_lib.serving import ini, layout
from course_lib.serving.layout import CONVERSION, LACKS, FtConfig

# Settings that are numbers, with their types; the largest one that a position or a rotary base may have.
NUMBERS: dict[str, Any] = {
    "layer_norm_eps": (int, float), "layer_norm_epsilon": (int, float), "rope_theta": (int, float),
    "max_position_embeddings": int,
}  # fmt: skip
LARGEST = 1 << 40
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}  # activation_type in config.ini → name in transformers


@dataclass(frozen=True)
class Given:
    """Settings from the user, for what a folder does not record; None if not given."""

    activation: str | None = None  # name in transformers, such as gelu_new
    layer_norm_eps: float | None = None
    rope_theta: float | None = None  # GPT-NeoX: base of the rotary wavelengths
    max_positions: int | None = None  # GPT-NeoX: context length [tokens]
    biases_divided_by: int | None = None  # GPT-NeoX: 1 or N


@dataclass(frozen=True)
class Setting:
    """A setting of the model, and where it comes from: an option, conversion.json, config.ini or the default."""

    value: Any
    source: str


@dataclass(frozen=True)
class FtFolder:
    """A FasterTransformer folder that can be read."""

    path: Path  # DIR/N-gpu
    config: FtConfig
    notes: list[str]
    conversion: dict[str, Any]  # the content of DIR/conversion.json; empty if there is none
    settings: dict[str, Setting]  # those that the format cannot store, by their keys in config.json
    divisor: int | None  # of the two biases of row-parallel products; None if nothing says it


def opened(folder: Path, given: Given | None = None) -> FtFolder:
    """Return what DIR or DIR/N-gpu says about its model, and what is given, which overrides it."""
    given = given or Given()
    path, ranks = layout.find(folder)
    config, notes = ini.read(path, ranks)
    if refused := layout.uneven(config):
        raise CourseError(f"{path}: {refused}")
    record = path.resolve().parent / CONVERSION
    conversion = read_record(record, {}, {"not_in_the_format": dict}) if record.is_file() else {}
    settings = _settings(config, conversion.get("not_in_the_format") or {}, given)
    recorded, allowed = conversion.get("biases_divided_by"), {1, ranks if config.family == "gptneox" else 1}
    if recorded is not None and (type(recorded) is not int or recorded not in allowed):
        raise CourseError(f"{record}: biases_divided_by = {recorded}: {ranks} ranks")
    if given.biases_divided_by not in (None, *allowed):
        choices = " or ".join(map(str, sorted(allowed)))
        raise UsageError(f"--biases-divided-by {given.biases_divided_by}: allowed: {choices}")
    if config.parallel_residual:
        # Every rank adds the biases, so converters divide them.
        known = ranks
    elif len(allowed) == 1:
        known = 1
    else:
        known = None
    return FtFolder(path, config, notes, conversion, settings, given.biases_divided_by or recorded or known)


def _settings(config: FtConfig, recorded: dict[str, Any], given: Given) -> dict[str, Setting]:
    """Return the settings that the format cannot store, each from the last of the sources that has it."""
    lacks, activation = LACKS[config.family], (config.activation or "").lower()
    sources: dict[str, dict[str, Any]] = {
        "default": {key: default for key, (_, default) in lacks.items()},
        "config.ini": {
            "layer_norm_epsilon": config.layernorm_eps,
            "activation_function": ACTIVATIONS.get(activation, config.activation),
        },
        CONVERSION: {key: recorded.get(key) for key in lacks},
        "option": {key: getattr(given, field) for key, (field, _) in lacks.items()},
    }
    settings = {
        key: Setting(value, source)
        for source, values in sources.items()
        for key, value in values.items()
        if key in lacks and value is not None
    }
    for key in ("hidden_act", "activation_function"):
        if key in settings and str(settings[key].value) not in ACT2FN:
            raise CourseError(f"{settings[key].source}: {key} {settings[key].value}: allowed: {', '.join(ACT2FN)}")
    for key in settings.keys() & NUMBERS.keys():
        value, kinds = settings[key].value, NUMBERS[key]
        if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < LARGEST:
            raise CourseError(f"{settings[key].source}: {key} is {value!r}; allowed: a number above 0")
    return settings

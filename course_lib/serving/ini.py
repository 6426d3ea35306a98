"""Reading and writing of a FasterTransformer config.ini, in the same way as FasterTransformer's engine and converters.

If a key is missing or unknown, the engine silently uses a default or drops a task. This module reports each such key
as a warning.
"""

import configparser
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from course_lib.checkpoints.number_formats import BYTES
from course_lib.errors import CourseError, one_line
from course_lib.files import require_file
from course_lib.serving.layout import CONFIG, MOST_LAYERS, MOST_RANKS, Family, FtConfig, PrefixTask, tensors

# The keys of both families and the fields of FtConfig, in the order of FasterTransformer's converters
KEYS: dict[Family, dict[str, str]] = {
    "gptneox": {
        "model_name": "model_name", "head_num": "heads", "size_per_head": "head_size", "inter_size": "inter_size",
        "num_layer": "layers", "rotary_embedding": "rotary", "vocab_size": "vocab_size", "start_id": "start_id",
        "end_id": "end_id", "use_gptj_residual": "parallel_residual", "weight_data_type": "dtype",
    },
    "gpt": {
        "model_name": "model_name", "head_num": "heads", "size_per_head": "head_size", "inter_size": "inter_size",
        "max_pos_seq_len": "positions", "num_layer": "layers", "vocab_size": "vocab_size", "start_id": "start_id",
        "end_id": "end_id", "weight_data_type": "dtype", "tensor_para_size": "ranks", "layernorm_eps": "layernorm_eps",
        "activation_type": "activation",
    },
}  # fmt: skip
MOST = 2**31 - 1  # the engine reads signed 32-bit integers
# Smallest and largest values of the numbers, if not 1 and MOST
LIMITS = {"start_id": (0, MOST), "end_id": (0, MOST), "rotary_embedding": (0, MOST), "num_layer": (1, MOST_LAYERS)}
# Keys that are read in a way of their own
SPECIAL = {
    "model_name",
    "use_gptj_residual",
    "weight_data_type",
    "tensor_para_size",
    "layernorm_eps",
    "activation_type",
}
PREFIX = 2  # prompt_learning_type for prefixes: keys and values before the text
ENGINE_EPS = 1e-6  # the engine's default for [gpt] without layernorm_eps
# Engine settings for which this course supports only one value
PLAIN = {
    "layernorm_type": "pre_layernorm", "has_positional_encoding": "true", "has_pre_decoder_layernorm": "false",
    "has_post_decoder_layernorm": "true", "use_attention_linear_bias": "false", "has_adapters": "false",
}  # fmt: skip
# Task names become part of file names; they must also pass through every config.ini parser unchanged
NAME = re.compile(r"\w[\w.+-]*")
# The engine reads at most 199 bytes per line, and a file name can have at most 255
NAME_BYTES = 100


def text(config: FtConfig) -> str:
    """Return the content of config.ini, with the keys in the order used by FasterTransformer's converters."""
    values: dict[str, Any] = {key: getattr(config, field) for key, field in KEYS[config.family].items()}
    if config.family == "gptneox":
        values["use_gptj_residual"] = int(config.parallel_residual)
    if config.tasks:
        values |= {"num_tasks": len(config.tasks), "prompt_learning_type": PREFIX}
    written = configparser.RawConfigParser()
    written[config.family] = {key: str(value) for key, value in values.items() if value is not None}
    for index, task in enumerate(config.tasks):
        written[f"task_{index}"] = {"task_name": task.name, "prompt_length": str(task.length)}
    file = StringIO()
    written.write(file)
    return file.getvalue()


def read(folder: Path, ranks: int, inter_size: int | None = None) -> tuple[FtConfig, list[str]]:
    """Return the configuration of a weights folder for `ranks` ranks, and the warnings.

    `inter_size` replaces the value in config.ini, where FasterTransformer's GPT-2 converter always writes 4·H.
    """
    ini = _Ini(folder / CONFIG)
    own, warnings = ini.section, ini.warnings
    if ini.family == "gpt":
        ini.require_plain()
    values: dict[str, Any] = {field: ini.number(key) for key, field in KEYS[ini.family].items() if key not in SPECIAL}
    values |= {"ranks": ranks, "model_name": ini.text("model_name"), "dtype": ini.dtype(), "tasks": ini.tasks()}
    if ini.family == "gpt":
        if (written := ini.number("tensor_para_size", ranks)) != ranks:
            warnings.append(f"tensor_para_size = {written}, but the folder holds {ranks} ranks")
        values |= {"layernorm_eps": ini.eps(), "activation": own.get("activation_type")}
        values["head"] = (folder / "model.lm_head.weight.bin").is_file()
    else:
        if "use_gptj_residual" not in own:
            warnings.append("use_gptj_residual is missing: the engine uses 1, parallel residual")
        values["parallel_residual"] = ini.number("use_gptj_residual", 1) != 0
    config = FtConfig(family=ini.family, **values)
    if config.rotary > config.head_size or config.rotary % 2:
        wrong = f"rotary_embedding = {config.rotary}"
        raise CourseError(f"{ini.path}: {wrong}: allowed: an even number up to {config.head_size}")
    for key, number in (("start_id", config.start_id), ("end_id", config.end_id)):
        if number >= config.vocab_size:
            warnings.append(f"{key} = {number} is no token, vocab_size = {config.vocab_size}")
    if inter_size:
        config = replace(config, inter_size=inter_size)
    elif (stored := _stored_inter_size(folder, config)) not in (None, config.inter_size):
        raise CourseError(
            f"{ini.path}: inter_size = {config.inter_size}, but the files have {stored}; "
            f"correct it there, or give --inter-size {stored} to `course ft import` and `course ft inspect`"
        )
    return config, warnings


def _stored_inter_size(folder: Path, config: FtConfig) -> int | None:
    """Return the inner size for which all files of layer 0 have the right size, or None if there is none."""
    bias = folder / "model.layers.0.mlp.dense_h_to_4h.bias.0.bin"
    if not bias.is_file() or config.ranks > MOST_RANKS:
        return None
    size = bias.stat().st_size // BYTES[config.dtype] * config.ranks
    stored = replace(config, layers=1, inter_size=size, tasks=())
    files = {folder / name: spec for spec in tensors(stored) if spec.in_layer for name in spec.files(config.ranks)}
    fits = all(path.is_file() and path.stat().st_size == spec.size(stored) for path, spec in files.items())
    return size if fits else None


class _Ini:
    """A parsed config.ini that returns values by key and raises a one-line CourseError if a value is impossible."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.parser = configparser.RawConfigParser(inline_comment_prefixes=(";",))
        try:
            self.parser.read_string(require_file(path).read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise CourseError(f"{path}: byte {error.start} is not UTF-8") from error
        except configparser.Error as error:
            raise CourseError(f"{path}: not readable: {one_line(error)}") from error
        families = [family for family in KEYS if self.parser.has_section(family)]
        if len(families) != 1:
            sections = ", ".join(self.parser.sections()) or "none"
            raise CourseError(f"{path}: expected one section [gptneox] or [gpt], found: {sections}")
        self.family: Family = families[0]
        self.section = self.parser[self.family]

    def text(self, key: str, section: str | None = None) -> str:
        section = section or self.family
        value = self.parser.get(section, key, fallback=None)
        if value is None:
            raise CourseError(f"{self.path}: [{section}] {key}: missing")
        return value

    def number(self, key: str, default: int | None = None, section: str | None = None) -> int:
        """Return a number; one with a default may be missing, or 0."""
        section = section or self.family
        if default is not None and not self.parser.has_option(section, key):
            return default
        value, (least, most) = self.text(key, section), LIMITS.get(key, (1 if default is None else 0, MOST))
        number = int(value) if value.isdecimal() and len(value) < 20 else -1
        if not least <= number <= most:
            wrong = f"{self.path}: [{section}] {key} = {value}"
            raise CourseError(f"{wrong}: allowed: a whole number from {least} to {most:,}")
        return number

    def dtype(self) -> str:
        value = self.text("weight_data_type")
        for dtype in BYTES:
            if dtype in value:
                return dtype
        self.warnings.append(f"weight_data_type = {value} is unknown ({', '.join(BYTES)}): the engine uses fp32")
        return "fp32"

    def eps(self) -> float | None:
        value = self.section.get("layernorm_eps")
        if value is None:
            self.warnings.append(f"layernorm_eps is missing: the engine uses {ENGINE_EPS:g}, GPT-2 has 1e-05")
            return None
        try:
            eps = float(value)
        except ValueError:
            eps = -1.0
        if not 0 < eps < 1:
            raise CourseError(f"{self.path}: [gpt] layernorm_eps = {value}: allowed: a number above 0 and below 1")
        return eps

    def require_plain(self) -> None:
        for key, plain in PLAIN.items():
            value = (self.section.get(key) or plain).lower()
            if str(self.parser.BOOLEAN_STATES.get(value, value)).lower() != plain:
                wrong = f"{self.path}: [gpt] {key} = {value}"
                raise CourseError(f"{wrong}: this variant of GPT-2 is not supported; allowed: {plain}")

    def tasks(self) -> tuple[PrefixTask, ...]:
        count, kind = self.number("num_tasks", 0), self.number("prompt_learning_type", 0)
        if kind not in (0, PREFIX):
            raise CourseError(f"{self.path}: prompt_learning_type = {kind}: allowed: 0 (none), {PREFIX} (prefixes)")
        if (count > 0) != (kind == PREFIX):
            self.warnings.append(f"num_tasks = {count} with prompt_learning_type = {kind}: no prefix is used")
            return ()
        first: dict[str, int] = {}
        tasks = []
        for index in range(count):
            name = self.text("task_name", f"task_{index}")
            if not NAME.fullmatch(name):
                raise CourseError(f"{self.path}: [task_{index}] task_name = {name}: cannot be part of a file's name")
            tasks.append(PrefixTask(name, self.number("prompt_length", 0, f"task_{index}")))
            if first.setdefault(name, index) < index:
                self.warnings.append(f"task_{first[name]} and task_{index} are both named {name}: the engine drops one")
        return tuple(tasks)

"""Reading and writing of a FasterTransformer config.ini, in the same way as FasterTransformer's engine and converters.

If a key is missing or unknown, the engine silently uses a default or drops a task. This module reports each such key
as a warning.
"""

import configparser
import re
from pathlib import Path
from typing import Any

from course_lib.checkpoints.number_formats import BYTES
from course_lib.errors import CourseError, one_line
from course_lib.files import require_file
from course_lib.serving.layout import CONFIG, Family, FtConfig, PrefixTask

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
# Keys that config.ini may lack, and the values of the engine, or None for what this course decides
OPTIONAL: dict[str, int | None] = {
    "use_gptj_residual": 1, "tensor_para_size": None, "layernorm_eps": None, "activation_type": None,
    "num_tasks": 0, "prompt_learning_type": 0, "prompt_length": 0,
}  # fmt: skip
TEXTS = ("model_name", "weight_data_type", "activation_type", "task_name")
MAY_BE_ZERO = ("start_id", "end_id", "rotary_embedding", *OPTIONAL)
# Keys that must not be missing, although the engine runs without them
MISSING = {
    "use_gptj_residual": "the engine uses 1, parallel residual",
    "layernorm_eps": "the engine uses 1e-06, GPT-2 has 1e-05",
}
PREFIX = 2  # prompt_learning_type for prefixes: keys and values before the text
# Task names become part of file names; they must also pass through every config.ini parser unchanged
NAME = re.compile(r"\w[\w.+-]*")


def text(config: FtConfig) -> str:
    """Return the content of config.ini, with the keys in the order used by FasterTransformer's converters."""
    values: dict[str, Any] = {key: getattr(config, field) for key, field in KEYS[config.family].items()}
    if config.family == "gptneox":
        values["use_gptj_residual"] = int(config.parallel_residual)
    if config.tasks:
        values |= {"num_tasks": len(config.tasks), "prompt_learning_type": PREFIX}
    sections: dict[str, dict[str, Any]] = {
        config.family: {key: value for key, value in values.items() if value is not None}
    }
    for index, task in enumerate(config.tasks):
        sections[f"task_{index}"] = {"task_name": task.name, "prompt_length": task.length}
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in section.items()) + "\n"
        for name, section in sections.items()
    )


def read(folder: Path, ranks: int) -> tuple[FtConfig, list[str]]:
    """Return the configuration of a weights folder for `ranks` ranks, and the warnings."""
    path, parser = folder / CONFIG, configparser.RawConfigParser(inline_comment_prefixes=(";",))
    try:
        parser.read_string(require_file(path).read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, configparser.Error) as error:
        raise CourseError(f"{path}: not readable: {one_line(error)}") from error
    families: list[Family] = [family for family in KEYS if parser.has_section(family)]
    if len(families) != 1:
        found = ", ".join(parser.sections()) or "none"
        raise CourseError(f"{path}: expected one section [gptneox] or [gpt], found: {found}")
    family = families[0]
    keys, section = KEYS[family], parser[family]
    values = {field: _value(path, section, key) for key, field in keys.items()}
    files = sum(1 for _ in folder.iterdir())
    # Each layer has several files.
    if values["layers"] > files:
        raise CourseError(f"{path}: [{family}] num_layer = {values['layers']}: the folder holds {files} files")
    warnings = [f"{key} is missing: {what}" for key, what in MISSING.items() if key in keys and key not in section]
    warnings += [f"{key} is unknown to this course" for key in section if key not in keys and key not in OPTIONAL]
    if values.get("ranks") not in (None, ranks):
        warnings.append(f"tensor_para_size = {values['ranks']}, but the folder holds {ranks} ranks")
    dtype = next((dtype for dtype in BYTES if dtype in values["dtype"]), None)
    if dtype is None:
        warnings.append(f"weight_data_type = {values['dtype']} is unknown ({', '.join(BYTES)}): the engine uses fp32")
    values |= {"ranks": ranks, "dtype": dtype or "fp32", "tasks": _tasks(path, parser, section, warnings)}
    if family == "gptneox":
        values["parallel_residual"] = bool(values["parallel_residual"])
    else:
        values["head"] = (folder / "model.lm_head.weight.bin").is_file()
    return FtConfig(family=family, **values), warnings


def _tasks(
    path: Path, parser: configparser.RawConfigParser, section: configparser.SectionProxy, warnings: list[str]
) -> tuple[PrefixTask, ...]:
    """Return the tasks in the order of their numbers, and add the warnings on them."""
    count, kind = (_value(path, section, key) for key in ("num_tasks", "prompt_learning_type"))
    if (count > 0) != (kind == PREFIX):
        warnings.append(f"num_tasks = {count} with prompt_learning_type = {kind}: no prefix is used")
        return ()
    tasks = []
    for name in (f"task_{index}" for index in range(count)):
        if not parser.has_section(name):
            raise CourseError(f"{path}: [{name}]: missing")
        tasks.append(PrefixTask(*(_value(path, parser[name], key) for key in ("task_name", "prompt_length"))))
        if not NAME.fullmatch(tasks[-1].name):
            raise CourseError(f"{path}: [{name}] task_name = {tasks[-1].name}: cannot be part of a file's name")
    if len({task.name for task in tasks}) < count:
        warnings.append("several tasks have the same name: the engine keeps one of them")
    return tuple(tasks)


def _value(path: Path, section: configparser.SectionProxy, key: str) -> Any:
    """Return a text or number of a section. Raises CourseError if it is impossible, or missing and not optional."""
    text = section.get(key)
    if text is None and key in OPTIONAL:
        return OPTIONAL[key]
    if text is None:
        raise CourseError(f"{path}: [{section.name}] {key}: missing")
    if key in TEXTS:
        return text
    try:
        number = float(text) if key == "layernorm_eps" else int(text)
    except ValueError:
        number = -1
    least = 0 if key in MAY_BE_ZERO else 1
    if number < least:
        raise CourseError(f"{path}: [{section.name}] {key} = {text}: allowed: a number from {least}")
    return number

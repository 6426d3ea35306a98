"""Verbs of chapter 7 for FasterTransformer folders: `course ft …`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from course_lib import options
from course_lib.errors import CourseError


def register_ft(app: typer.Typer) -> None:
    """Adds these verbs to the `course` command."""
    group = options.group("FasterTransformer weights: write them, check them.")
    group.command("export")(export)
    group.command("inspect")(inspect)
    app.add_typer(group, name="ft")


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Hugging Face folder of a GPT-NeoX or GPT-2")],
    output: options.Output,
    tensor_parallel: Annotated[int, typer.Option("--tensor-parallel", metavar="N", min=1, help="ranks (GPUs) that will share the model")] = 1,
    dtype: Annotated[Literal["fp32", "fp16", "bf16"], typer.Option("--dtype", help="bf16: the engine reads it, the original's converters do not write it")] = "fp32",
    prefix: Annotated[list[str] | None, typer.Option("--prefix", metavar="[NAME=]FILE", help="a task, numbered from 0 as given; `none=`: one without a prefix; repeatable")] = None,
    name: Annotated[str | None, typer.Option("--name", help="model_name in config.ini; default: the folder's")] = None,
    upstream_bias_scaling: Annotated[bool, typer.Option("--upstream-bias-scaling", help="divide GPT-NeoX's biases by N also where the engine adds them once")] = False,
    upstream_ini: Annotated[bool, typer.Option("--upstream-ini", help="GPT-2: leave layernorm_eps and activation_type out of config.ini")] = False,
    upstream_head: Annotated[bool, typer.Option("--upstream-head", help="GPT-2: leave out an output layer that is not the embedding")] = False,
) -> None:  # fmt: skip
    """Write a model, and prefixes as its tasks, as a FasterTransformer folder, corrected where the original's converters err."""
    from course_lib.files import require_other
    from course_lib.serving import tasks
    from course_lib.serving.export import export as write
    from course_lib.serving.ft_source import Corrections

    corrections = Corrections(not upstream_bias_scaling, not upstream_ini, not upstream_head)
    for argument in prefix or ():
        if file := tasks.split(argument)[1]:
            require_other(file, output)
    prefixes = [tasks.named(argument) for argument in prefix or ()]
    print(write(model, output, tensor_parallel, dtype, prefixes, corrections, name).summary())


def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a FasterTransformer folder, or the one around it")],
    values: Annotated[bool, typer.Option("--values", help="also read every number, for NaN and infinity")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable, every file by itself")] = False,
) -> None:
    """Compare a FasterTransformer folder with its config.ini, file by file; exit code 1 if anything is wrong."""
    from course_lib.serving.check import inspect as examine

    found = examine(folder, values)
    if as_json:
        content: dict[str, Any] = asdict(found) | {"folder": str(found.folder)}
        print(json.dumps(content, ensure_ascii=False, indent=1))
    else:
        print("\n".join(found.lines()))
    if found.findings:
        raise CourseError(f"{folder}: {len(found.findings)} wrong, as listed; the engine would run all the same")

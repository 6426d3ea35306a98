"""The `course ft` commands for chapter 7."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from course_lib.command_line import options
from course_lib.errors import CourseError

InterSize = Annotated[
    int | None,
    typer.Option(
        "--inter-size",
        metavar="I",
        min=1,
        help="inner size of the MLP; FasterTransformer's GPT-2 converter writes 4 times the hidden size for any model",
    ),
]


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Hugging Face folder of a GPT-NeoX or GPT-2")],
    output: options.Output,
    tensor_parallel: Annotated[
        int, typer.Option("--tensor-parallel", metavar="N", min=1, help="number of ranks (GPUs) that share the model")
    ] = 1,
    dtype: Annotated[
        Literal["fp32", "fp16", "bf16"],
        typer.Option(
            "--dtype",
            help="number format of the weights; FasterTransformer's engine reads bf16, its converters do not write it",
        ),
    ] = "fp32",
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--prefix",
            metavar="[NAME=]FILE",
            help="a task; repeatable, numbered from 0 in the order given; NAME= without FILE: a task without a prefix",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="model_name in config.ini; default: the name of MODEL's folder")
    ] = None,
    upstream_bias_scaling: Annotated[
        bool,
        typer.Option(
            "--upstream-bias-scaling", help="GPT-NeoX: divide biases by N even if the engine adds them only once"
        ),
    ] = False,
    upstream_ini: Annotated[
        bool, typer.Option("--upstream-ini", help="GPT-2: omit layernorm_eps and activation_type from config.ini")
    ] = False,
    upstream_head: Annotated[
        bool, typer.Option("--upstream-head", help="GPT-2: omit an output layer that is not the embedding")
    ] = False,
) -> None:
    """Export a model, with prefixes as its tasks, to a FasterTransformer folder.

    Corrects three errors of FasterTransformer's converters; the --upstream options keep them.
    """
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


def import_(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="FasterTransformer folder N-gpu, or the folder that holds it")
    ],
    output: options.Output,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", metavar="T", help="tokenizer folder; default: DIR/tokenizer")
    ] = None,
    activation: Annotated[
        str | None,
        typer.Option("--activation", metavar="NAME", help="activation function; default: gelu, for GPT-2 gelu_new"),
    ] = None,
    layer_norm_eps: Annotated[
        float | None, typer.Option("--layer-norm-eps", metavar="X", help="epsilon of the layer norms; default: 1e-05")
    ] = None,
    rope_theta: Annotated[
        float | None,
        typer.Option("--rope-theta", metavar="X", help="GPT-NeoX: base of the rotary positions; default: 10000"),
    ] = None,
    max_positions: Annotated[
        int | None,
        typer.Option("--max-positions", metavar="P", min=1, help="GPT-NeoX: context length [tokens]; default: 2048"),
    ] = None,
    biases_divided_by: Annotated[
        int | None,
        typer.Option(
            "--biases-divided-by",
            metavar="N",
            help="GPT-NeoX: number by which the converter divided two biases: 1 or the number of ranks; "
            "needed for several ranks with use_gptj_residual = 0 if DIR has no conversion.json",
        ),
    ] = None,
    inter_size: InterSize = None,
) -> None:
    """Turn a FasterTransformer folder back into a Hugging Face folder, bit for bit, with its prefixes as files.

    The options are for settings that the format does not store. Without an option, the conversion.json of `course ft
    export` is used, else config.ini, else the default of the model family; the output's conversion.json says which.
    """
    from course_lib.serving.ft_import import import_folder
    from course_lib.serving.ft_settings import Given

    given = Given(activation, layer_norm_eps, rope_theta, max_positions, biases_divided_by, inter_size)
    print(import_folder(folder, output, tokenizer, given).summary())


def inspect(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="FasterTransformer folder N-gpu, or the folder that holds it")
    ],
    values: Annotated[bool, typer.Option("--values", help="also check every number for NaN and infinity")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, with one entry per file")] = False,
    inter_size: InterSize = None,
) -> None:
    """Compare a FasterTransformer folder with its config.ini, file by file; exit code 1 if anything is wrong."""
    from course_lib.serving.check import inspect as examine

    inspection = examine(folder, values, inter_size)
    if as_json:
        content: dict[str, Any] = asdict(inspection) | {"folder": str(inspection.folder)}
        print(json.dumps(content, ensure_ascii=False, indent=1))
    else:
        print("\n".join(inspection.lines()))
    if inspection.findings:
        raise CourseError(
            f"{folder}: {len(inspection.findings)} problem(s), listed above; the engine would run nevertheless"
        )

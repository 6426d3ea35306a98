"""The `course ct2` commands for chapter 7."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from course_lib.command_line import options
from course_lib.errors import CourseError
from course_lib.generation.config import GenerateConfig
from course_lib.serving.ct2_config import Quantization


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Hugging Face folder of a GPT-2 or GPT-NeoX")],
    output: options.Output,
    quantization: Annotated[
        Quantization,
        typer.Option("--quantization", help="number format of the weights; float32 generates the same text as MODEL"),
    ] = "float32",
) -> None:
    """Export a model, with its tokenizer, to the format of CTranslate2."""
    _require_installed()
    from course_lib.serving import ct2

    print(ct2.export(model, output, quantization).summary())


def generate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder written by `course ct2 export`")],
    prompts: Annotated[
        list[str], typer.Argument(metavar="PROMPT...", help="raw Japanese texts, processed as one batch")
    ],
    threads: Annotated[int, typer.Option("--threads", min=0, help="threads per batch; 0: CTranslate2's choice")] = 0,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Continue texts with CTranslate2.

    Takes the settings of `course generate`, except strategy=beam, repetition_penalty and no_repeat_ngram_size.
    """
    _require_installed()
    from course_lib.serving.ct2_generate import Ct2Generator

    settings = options.given(GenerateConfig, config, overrides)
    for continuations in Ct2Generator(folder, threads).generate(prompts, settings):
        for continuation in continuations:
            print(continuation.text)


def _require_installed() -> None:
    if find_spec("ctranslate2") is None:
        raise CourseError("ctranslate2: not installed; pip install 'ctranslate2>=4.8'")

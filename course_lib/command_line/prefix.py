"""Commands for chapter 6: prefixes of a frozen model."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from course_lib.command_line.from_options import FromOptions
from course_lib.command_line.models import Continued, tell_own
from course_lib.command_line.options import Note, Output, Prompts, path
from course_lib.command_line.output import Shown
from course_lib.generation.config import GenerateConfig
from course_lib.language.words import tr
from course_lib.prefix.config import Form


def generate(
    model: Annotated[
        Path,
        Argument(metavar="MODEL", help="a GPT-2 or GPT-NeoX folder, or aozora; it is only read", parser=path),
        Note.MODEL,
    ],
    prompts: Prompts,
    settings: Annotated[GenerateConfig, FromOptions()],
    *,
    prefix: Annotated[
        list[Path] | None,
        Option("--prefix", help="a prefix in course or rinna form, or a peft folder; repeatable", parser=path),
    ] = None,
    any_base: Annotated[
        bool, Option("--any-base", help="accept a prefix trained on other weights of the same shape")
    ] = False,
) -> list[Continued]:
    """Continue texts with a model, without a prefix and with each given prefix, side by side."""
    from course_lib.checkpoints import aozora
    from course_lib.generation.generator import Generator
    from course_lib.models import frozen_base
    from course_lib.prefix.files import read
    from course_lib.pretrain import text_codec

    prefixes = [None, *map(read, prefix or [])]
    pairs = [(prompt, each) for prompt in prompts for each in prefixes]
    # Reject other model families before loading any weights.
    frozen_base.read_config(model)
    aozora.tell(model)
    generator = Generator(model, text_codec.load, any_base)
    tell_own(settings, generator.completed(settings))
    results = generator.generate([prompt for prompt, _ in pairs], settings, [each for _, each in pairs])
    return [
        Continued(prompt, [each.text for each in texts], (used.task if used else tr("no prefix")) if prefix else "")
        for (prompt, used), texts in zip(pairs, results, strict=True)
    ]


def convert(
    prefix: Annotated[
        Path, Argument(metavar="PREFIX", help="a prefix file of any form, or a peft folder", parser=path)
    ],
    target: Output,
    *,
    form: Annotated[Form, Option("--form", help="form of the output")] = "course",
    base: Annotated[
        Path | None,
        Option("--base", help="the model the prefix belongs to; checked, and recorded in the output", parser=path),
        Note.MODEL,
    ] = None,
    task: Annotated[str | None, Option("--task", help="name of the task; default: as in the file")] = None,
) -> object:
    """Write a prefix in another form. The numbers stay the same; their names change."""
    from course_lib.files import require_other
    from course_lib.prefix.files import read, write

    for read_only in (prefix, base):
        if read_only:
            require_other(read_only, target)
    found = read(prefix)
    found = replace(found, task=task or found.task)
    write(found, target, form, base)
    length, width = found.values.shape
    facts = {"task": found.task, "length": length, "width": width, "form": form}
    return Shown(facts, tr("{task}: {length} positions of {width} numbers, {form} form", **facts))

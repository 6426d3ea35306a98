"""Commands for chapter 6: `course prefix …`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from course_lib.command_line import options
from course_lib.errors import UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.language.words import tr
from course_lib.prefix.config import Form, PrefixConfig, RecipeConfig
from course_lib.settings import config as configuration
from course_lib.training.run_verb import RunKind, Step

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="a GPT-2 or GPT-NeoX folder; it is only read")]
AnyBase = Annotated[bool, typer.Option("--any-base", help="accept a prefix trained on other weights of the same shape")]


def _complete(settings: PrefixConfig, _file: Path) -> PrefixConfig:
    """Return the settings, using the course's samples for the task and the profile's base model where unset."""
    from course_lib.prefix import products

    settings = products.with_data(settings)
    if settings.model.base:
        return settings
    return replace(settings, model=replace(settings.model, base=products.BASE.path() / products.MODEL))


def _run(settings: PrefixConfig, resume: bool) -> str:
    from course_lib.prefix.export import export
    from course_lib.prefix.task import PrefixTask
    from course_lib.training import launch

    run = launch.train(PrefixTask(settings), resume)
    if run.followed:
        return tr(launch.FOLLOWED)
    return export(run.folder).summary()


RUN = RunKind(
    PrefixConfig,
    of_profile=lambda profile: configuration.section("prefix.recipe", RecipeConfig, of=profile).tasks[0],
    complete=_complete,
    run=_run,
)
train = RUN.verb(
    "Train a prefix of a frozen model with DeepSpeed, and write it into the run's folder.\n\n"
    "If model.base is unset, the profile's base is used; if data.input is unset, the course's samples of task_name.",
    "folder of the run (engine.output_dir)",
)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")],
    output: options.Output,
    form: Annotated[Form, typer.Option("--form", help="form of the prefix file")] = "course",
    step: Step = None,
) -> None:
    """Write the prefix of a run's latest complete checkpoint.

    If the run's method is `full`, write the trained model as a Hugging Face folder instead.
    """
    from course_lib.prefix.export import export as write

    print(write(run, output, form, step).summary())


def generate(
    model: Model,
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="raw Japanese text")],
    prefixes: Annotated[
        list[Path] | None,
        typer.Option(
            "--prefix", metavar="FILE", help="a prefix file in course or rinna form, or a peft folder; repeatable"
        ),
    ] = None,
    any_base: AnyBase = False,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Continue texts with a model, without a prefix and with each given prefix, side by side."""
    from course_lib.prefix.files import read
    from course_lib.prefix.generate import side_by_side

    settings = options.given(GenerateConfig, config, overrides)
    rows = side_by_side(model, prompts, [read(path) for path in prefixes or []], settings, any_base)
    for task, texts in rows:
        name = task or tr("no prefix")
        for generated in texts:
            print(f"[{name}] {generated.text}" if prefixes else generated.text)


def convert(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="a prefix file of any form, or a peft folder")],
    output: options.Output,
    form: Annotated[Form, typer.Option("--form", help="form of the output")] = "course",
    base: Annotated[
        Path | None,
        typer.Option(
            "--base", metavar="MODEL", help="the model the prefix belongs to; checked, and recorded in the output"
        ),
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="name of the task; default: as in the file")] = None,
) -> None:
    """Write a prefix in another form. The numbers stay the same; their names change."""
    from course_lib.files import require_other
    from course_lib.prefix.files import read, write

    for read_only in (source, base):
        if read_only:
            require_other(read_only, output)
    prefix = read(source)
    write(replace(prefix, task=task or prefix.task), output, form, base)
    length, width = prefix.values.shape
    print(
        tr(
            "{task}: {length} positions of {width} numbers, {form} form → {output}",
            task=task or prefix.task,
            length=length,
            width=width,
            form=form,
            output=output,
        )
    )


def report(
    model: Model,
    length: Annotated[int, typer.Option("--length", min=1, help="positions of the prefix")] = 10,
    input_dim: Annotated[int, typer.Option("--input-dim", min=1, help="width of the encoder's embedding")] = 10,
    hidden_dim: Annotated[int, typer.Option("--hidden-dim", min=1, help="width of the encoder's hidden layer")] = 10,
    embedding: Annotated[
        bool, typer.Option("--embedding", help="the prefix itself is trained, without an MLP")
    ] = False,
) -> None:
    """Count the parameters of a prefix: trained, deployed, and as shares of the base's parameters."""
    from course_lib.generation.prefix_cache import Shape
    from course_lib.models.frozen_base import read_config
    from course_lib.prefix import report as reporter
    from course_lib.prefix.files import is_prefix

    if is_prefix(model):
        raise UsageError(f"MODEL: {model} is a prefix; allowed: the folder of its base, with --length for the prefix")
    shape = Shape.of(read_config(model))
    base = reporter.base_parameters(model)
    print(reporter.count(shape, base, length, input_dim, hidden_dim, not embedding).summary())

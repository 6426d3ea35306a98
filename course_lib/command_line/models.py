"""Commands for models on disk: convert, publish and continue texts with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.command_line.from_options import FromOptions
from course_lib.command_line.options import Note, Output, Prompts, path
from course_lib.errors import notify
from course_lib.generation.config import GenerateConfig
from course_lib.language.words import tr
from course_lib.settings import config as configuration

Model = Annotated[
    Path, Argument(metavar="MODEL", help="a Hugging Face model folder, or aozora", parser=path), Note.MODEL
]


@dataclass
class Continued:
    """The texts that continue a prompt; `prefix` names the prefix or spout that steered them, if any."""

    prompt: str
    texts: list[str]
    prefix: str = ""

    def summary(self) -> str:
        """Return one text after the other."""
        return "\n".join(f"[{self.prefix}] {text}" if self.prefix else text for text in self.texts)


def convert_megatron(
    checkpoint: Annotated[
        Path,
        Argument(
            metavar="CHECKPOINT",
            help="a Megatron-DeepSpeed checkpoint folder: global_stepN, or its parent",
            parser=path,
        ),
    ],
    target: Output,
    *,
    tokenizer: Annotated[
        Path | None,
        Option("--tokenizer", help="tokenizer folder to copy; its number of entries is kept", parser=path),
        Note.MODEL,
    ] = None,
    dtype: Annotated[
        NumberFormat | None, Option("--dtype", help="number format of the weights; default: the checkpoint's")
    ] = None,
) -> object:
    """Turn a Megatron-DeepSpeed GPT checkpoint into a Hugging Face GPT-2."""
    from course_lib.pretrain.megatron import convert

    return convert(checkpoint, target, tokenizer, dtype)


def generate(model: Model, prompts: Prompts, settings: Annotated[GenerateConfig, FromOptions()]) -> list[Continued]:
    """Continue raw Japanese texts with a model; normalization, segmentation and its inverse are automatic."""
    from course_lib.checkpoints import aozora
    from course_lib.generation.generator import Generator
    from course_lib.pretrain import text_codec

    aozora.tell(model)
    generator = Generator(model, text_codec.load)
    tell_own(settings, generator.completed(settings))
    return continued(prompts, generator.generate(prompts, settings))


def tell_own(given: GenerateConfig, completed: GenerateConfig) -> None:
    """Print the settings that come from the model's own generation_config.json and are not the defaults."""
    used, default = configuration.to_dict(completed), configuration.to_dict(given.completed({}))
    if own := [f"{name}={value}" for name, value in used.items() if value != default[name]]:
        notify(tr("settings of the model's generation_config.json: {values}", values=", ".join(own)))


def continued(prompts: Sequence[str], results: Sequence[Sequence[Any]]) -> list[Continued]:
    """Return the texts of each prompt's results with the prompt."""
    pairs = zip(prompts, results, strict=True)
    return [Continued(prompt, [each.text for each in found]) for prompt, found in pairs]


def push(
    model: Model,
    repo: Annotated[str, Argument(metavar="REPO", help="repository on the Hub: NAME or OWNER/NAME")],
    *,
    private: Annotated[bool, Option("--private", help="make the repository private")] = False,
) -> str:
    """Upload a model folder to the Hugging Face Hub. The token comes from HF_TOKEN or `hf auth login`."""
    from course_lib.checkpoints.push import push

    return push(model, repo, private)

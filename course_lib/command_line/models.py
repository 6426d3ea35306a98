"""Commands for models on disk: convert, publish and continue texts with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.command_line.from_options import FromOptions
from course_lib.command_line.options import Output, Prompts, path
from course_lib.generation.config import GenerateConfig

Model = Annotated[Path, Argument(metavar="MODEL", help="a Hugging Face model folder", parser=path)]


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
    from course_lib.generation.generator import Generator
    from course_lib.pretrain import text_codec

    return continued(prompts, Generator(model, text_codec.load).generate(prompts, settings))


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

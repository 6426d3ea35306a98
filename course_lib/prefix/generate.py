"""Side-by-side text generation from one model, without a prefix and with each of several prefixes."""

from collections.abc import Sequence
from pathlib import Path

from course_lib.generation.codec import Generated
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.models import frozen_base
from course_lib.prefix.files import Prefix
from course_lib.pretrain import text_codec


def side_by_side(
    model_folder: Path,
    prompts: Sequence[str],
    prefixes: Sequence[Prefix],
    settings: GenerateConfig | None = None,
    any_base: bool = False,
) -> list[tuple[str, list[Generated]]]:
    """Return (task, texts) for each prompt, first without a prefix and then with each prefix.

    All texts are generated in one call. The task is empty for texts generated without a prefix.
    """
    pairs = [(prompt, prefix) for prompt in prompts for prefix in (None, *prefixes)]
    # Reject other model families before loading any weights.
    frozen_base.read_config(model_folder)
    generator = Generator(model_folder, text_codec.load, any_base)
    results = generator.generate([prompt for prompt, _ in pairs], settings, [prefix for _, prefix in pairs])
    return [(prefix.task if prefix else "", texts) for (_, prefix), texts in zip(pairs, results, strict=True)]

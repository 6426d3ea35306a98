"""Generates texts from a folder and a prompt; generation/generator.py does the work.

If the model folder has the course's preparation.json, the prompt is normalized and segmented like the training text.
Any other Hugging Face model gets the prompt unchanged.
"""

from pathlib import Path

from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec


def generate(model_folder: Path, prompt: str, settings: GenerateConfig | None = None) -> list[str]:
    """Generates texts that begin with the normalized `prompt`.

    Raises CourseError for an unreadable model folder, and UsageError if prompt and continuation are too long.
    """
    (texts,) = Generator(model_folder, text_codec.load).generate([prompt], settings)
    return [generated.text for generated in texts]

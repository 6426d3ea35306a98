"""Text generation from a model folder, based on generation/generator.py.

If the model folder has the course's preparation.json, the prompt is normalized and segmented like the training text.
Any other Hugging Face model receives the prompt unchanged.
"""

from pathlib import Path

from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec


def generate(model_folder: Path, prompt: str, settings: GenerateConfig | None = None) -> list[str]:
    """Return generated texts, each starting with the prompt (normalized if the folder has preparation.json).

    Raises CourseError if the model folder is unreadable, and UsageError if the prompt and its continuation are too
    long.
    """
    (texts,) = Generator(model_folder, text_codec.load).generate([prompt], settings)
    return [generated.text for generated in texts]

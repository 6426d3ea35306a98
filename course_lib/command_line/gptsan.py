"""Verbs for chapter 5: a GPTSAN's vocabulary, examples, extra stage and texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from course_lib.command_line.models import Continued, Prompts
from course_lib.command_line.output import Shown, text
from course_lib.gptsan.config import EncodeConfig, VocabularyConfig
from course_lib.gptsan.generation_config import GenerateConfig

Model = Annotated[Path, "folder of a GPTSAN"]
Original = Annotated[Path, "checkpoint of the original: folder, prefix or .index file"]
Documents = Annotated[Sequence[Path], "documents: .jsonl, or plain text; - reads standard input"]
Examples = Annotated[Sequence[Path], "documents, or one CSV file `filename,fileid`; - reads standard input"]
Tokenizer = Annotated[Path | None, "tokenizer folder; default: the profile's vocabulary"]
Before = Annotated[str, "text before the prompt; attention in both directions"]


def vocabulary(sources: Documents, target: Path, settings: VocabularyConfig) -> object:
    """Build a vocabulary in the published format (vocab.txt, emoji.json) from a corpus."""
    from course_lib.documents import read_texts
    from course_lib.gptsan.vocabulary import build_vocabulary

    texts = (text for path in sources for text in read_texts(path))
    return build_vocabulary(texts, settings.size, target, settings.character_coverage)


def encode(
    sources: Examples, target: Path, settings: EncodeConfig, workers: int, *, tokenizer: Tokenizer = None
) -> object:
    """Encode texts as training examples.

    The defaults fit the published model; `-c tiny` encodes for the model of the profile tiny.
    """
    from course_lib.gptsan import encode, products

    inputs = str(sources[0]) if len(sources) == 1 else sources
    return encode.encode(inputs, tokenizer or products.VOCABULARY.path(), target, settings, workers)


def import_tf(checkpoint: Original, target: Path) -> object:
    """Convert a TensorFlow checkpoint of the original GPTSAN to a Hugging Face folder."""
    from course_lib.gptsan.import_tf import import_tf

    report = import_tf(checkpoint, target)
    return Shown(report, text({key: report[key] for key in ("variables", "left_out", "parameters")}))


def add_extra_stage(
    model: Annotated[Path, "folder of a GPTSAN; it is not changed"],
    target: Path,
    *,
    layers: Annotated[int, "number of new layers on top", {"min": 1}],
    seed: Annotated[int, "seed of the new weights", {"min": 0}] = 0,
) -> object:
    """Add layers to a GPTSAN; write the list of frozen parameters and the settings that train the others."""
    from course_lib.gptsan.extra_stage import add_extra_stage

    return add_extra_stage(model, target, layers, seed)


def generate(
    model: Model, prompts: Prompts = ("",), *, prefix_text: Before = "", settings: GenerateConfig
) -> list[Continued]:
    """Continue texts with a GPTSAN, steered by its spout."""
    from course_lib.gptsan.generate import GPTSANGenerator

    generator = GPTSANGenerator.open(model)
    return [Continued(prompt, generator.continue_text(prompt, settings, prefix_text)) for prompt in prompts]

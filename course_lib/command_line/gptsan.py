"""Commands for chapter 5: a GPTSAN's vocabulary, examples, extra stage and texts."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from course_lib.command_line.from_options import FromOptions
from course_lib.command_line.models import Continued
from course_lib.command_line.options import CORES, Note, Output, Workers, path
from course_lib.command_line.output import Shown, text
from course_lib.gptsan.config import CLASSES_SECTION, VOCABULARY_SECTION, EncodeConfig, GenerateConfig, VocabularyConfig


def vocabulary(
    sources: Annotated[
        list[Path],
        Argument(metavar="SOURCE", help="documents: .jsonl, or plain text; - reads standard input", parser=path),
        Note.INPUT_FILE,
    ],
    target: Output,
    settings: Annotated[VocabularyConfig, FromOptions(VOCABULARY_SECTION)],
) -> object:
    """Build a vocabulary in the published format (vocab.txt, emoji.json) from a corpus."""
    from course_lib.documents import read_texts
    from course_lib.gptsan.vocabulary import build_vocabulary

    texts = (text for path in sources for text in read_texts(path))
    return build_vocabulary(texts, settings.size, target, settings.character_coverage)


def encode(
    sources: Annotated[
        list[Path],
        Argument(
            metavar="SOURCE",
            help="documents, or one CSV file `filename,fileid`; - reads standard input",
            parser=path,
        ),
        Note.INPUT_FILE,
    ],
    target: Output,
    settings: Annotated[EncodeConfig, FromOptions(CLASSES_SECTION)],
    workers: Workers = CORES,
    *,
    tokenizer: Annotated[
        Path | None, Option("--tokenizer", help="tokenizer folder; default: the profile's vocabulary", parser=path)
    ] = None,
) -> object:
    """Encode texts as training examples.

    The defaults fit the published model; `-c tiny` encodes for the model of the profile tiny.
    """
    from course_lib.gptsan import encode, products

    inputs = str(sources[0]) if len(sources) == 1 else sources
    return encode.encode(inputs, tokenizer or products.VOCABULARY.path(), target, settings, workers)


def import_tf(
    checkpoint: Annotated[
        Path,
        Argument(metavar="CHECKPOINT", help="checkpoint of the original: folder, prefix or .index file", parser=path),
    ],
    target: Output,
) -> object:
    """Convert a TensorFlow checkpoint of the original GPTSAN to a Hugging Face folder."""
    from course_lib.gptsan.import_tf import import_tf

    report = import_tf(checkpoint, target)
    return Shown(report, text({key: report[key] for key in ("variables", "left_out", "parameters")}))


def add_extra_stage(
    model: Annotated[Path, Argument(metavar="MODEL", help="folder of a GPTSAN; it is not changed", parser=path)],
    target: Output,
    *,
    layers: Annotated[int, Option("--layers", min=1, help="number of new layers on top")],
    seed: Annotated[int, Option("--seed", min=0, help="seed of the new weights")] = 0,
) -> object:
    """Add layers to a GPTSAN; write the list of frozen parameters and the settings that train the others."""
    from course_lib.gptsan.extra_stage import add_extra_stage

    return add_extra_stage(model, target, layers, seed)


def generate(
    model: Annotated[Path, Argument(metavar="MODEL", help="folder of a GPTSAN", parser=path)],
    prompts: Annotated[
        list[str] | None,
        Argument(metavar="PROMPT", help="raw Japanese text; - reads standard input"),
        Note.INPUT_TEXT,
    ] = None,
    *,
    prefix_text: Annotated[
        str, Option("--prefix-text", help="text before the prompt; attention in both directions")
    ] = "",
    settings: Annotated[GenerateConfig, FromOptions()],
) -> list[Continued]:
    """Continue texts with a GPTSAN, steered by its spout."""
    from course_lib.gptsan.generate import GPTSanGenerator

    generator = GPTSanGenerator.open(model)
    return [Continued(prompt, generator.continue_text(prompt, settings, prefix_text)) for prompt in prompts or [""]]

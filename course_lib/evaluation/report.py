"""One evaluation of several models: on documents, on minimal pairs or on both, as a table and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.evaluation import bits, pairs
from course_lib.evaluation.bits import Bits
from course_lib.evaluation.pairs import Accuracy, Pair
from course_lib.evaluation.scoring import ScoringModel, one_line
from course_lib.evaluation.windows import WindowSettings
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress


@dataclass(frozen=True)
class Inputs:
    """What every model is evaluated on. Without files, there are no documents; without pairs, no minimal pairs."""

    files: tuple[Path, ...]
    characters: int  # of all documents, raw
    pairs: tuple[Pair, ...]
    settings: WindowSettings

    @classmethod
    def read(cls, files: Sequence[Path], pairs: Sequence[Pair], settings: WindowSettings) -> "Inputs":
        """Read the documents once, so that a bad file is reported before any model is loaded."""
        total = 0
        for path in files:
            characters = sum(map(len, documents([path])))
            if not characters:
                raise CourseError(f"{path}: no document in it")
            total += characters
        return cls(tuple(files), total, tuple(pairs), settings)


@dataclass(frozen=True)
class Result:
    """The figures of one model."""

    model: str
    bits: Bits | None
    minimal_pairs: dict[str, Accuracy] | None


def documents(files: Sequence[Path]) -> Iterator[str]:
    """Yield the raw documents of the files, without line breaks, if they hold more than whitespace."""
    return (one_line(text) for path in files for text in read_texts(path) if text.strip())


def evaluate(name: str, model: ScoringModel, inputs: Inputs) -> Result:
    """Return the figures of a model."""
    measured = judged = None
    if inputs.files:
        with progress(inputs.characters, "char", name) as bar:
            measured = bits.bits(model, documents(inputs.files), inputs.settings, bar)
    if inputs.pairs:
        with progress(len(inputs.pairs), "pair", name) as bar:
            judged = pairs.accuracies(inputs.pairs, pairs.judge(model, inputs.pairs, inputs.settings, bar))
    return Result(name, measured, judged)


def table(results: Sequence[Result]) -> str:
    """Return the figures of all models as text tables."""
    measured = [(result.model, result.bits) for result in results if result.bits]
    judged = {result.model: result.minimal_pairs for result in results if result.minimal_pairs}
    parts = []
    if measured:
        sizes = vars(measured[0][1])
        head = tr("{documents:,} documents, {characters:,} raw characters, {bytes:,} bytes of UTF-8", **sizes)
        parts = [f"{head}\n{bits.table(measured)}"]
    return "\n\n".join([*parts, pairs.table(judged)] if judged else parts)


def to_dict(inputs: Inputs, results: Sequence[Result]) -> dict[str, Any]:
    """Return inputs and figures, for JSON."""
    models = [asdict(result) | {"bits": result.bits and result.bits.to_dict()} for result in results]
    window, stride = inputs.settings.window, inputs.settings.stride
    return {"data": [str(path) for path in inputs.files], "window": window, "stride": stride, "models": models}

"""One evaluation of several models: on documents, minimal pairs and tasks of a harness, as a table and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.documents import read_texts
from course_lib.errors import CourseError
from course_lib.evaluation import bits, copies, pairs
from course_lib.evaluation.bits import Bits
from course_lib.evaluation.copies import Copies, CopySettings, Prompt, Texts
from course_lib.evaluation.pairs import Accuracy, Pair
from course_lib.evaluation.scoring import GeneratingModel, ScoringModel, one_line
from course_lib.evaluation.windows import WindowSettings
from course_lib.language.columns import aligned
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress

if TYPE_CHECKING:
    from course_lib.evaluation.tasks import Score, Tasks


@dataclass(frozen=True)
class Inputs:
    """What every model is evaluated on: documents, minimal pairs, tasks; each of them may be missing."""

    files: tuple[Path, ...]
    characters: int  # of all documents, raw
    pairs: tuple[Pair, ...]
    settings: WindowSettings
    tasks: "Tasks | None" = None

    @classmethod
    def read(
        cls, files: Sequence[Path], pairs: Sequence[Pair], settings: WindowSettings, tasks: "Tasks | None" = None
    ) -> "Inputs":
        """Read the documents once, so that a bad file is reported before any model is loaded."""
        total = 0
        for path in files:
            characters = sum(map(len, documents([path])))
            if not characters:
                raise CourseError(f"{path}: no document in it")
            total += characters
        return cls(tuple(files), total, tuple(pairs), settings, tasks)


@dataclass(frozen=True)
class Result:
    """The figures of one model."""

    model: str
    bits: Bits | None
    minimal_pairs: dict[str, Accuracy] | None
    tasks: "list[Score] | None" = None
    # By sampling setting.
    copies: dict[str, Copies] | None = None


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
    # A trigram model writes nothing, so the harness cannot ask it.
    scores = None
    if inputs.tasks and isinstance(model, GeneratingModel):
        scores = inputs.tasks.scores(model, inputs.settings.batch_size)
    return Result(name, measured, judged, scores)


def samples(
    name: str,
    model: GeneratingModel,
    prompts: Sequence[Prompt],
    settings: CopySettings,
    top_p: Sequence[float] | None = None,
) -> Texts:
    """Return the texts that a model writes after the prompts, by its name and the sampling setting."""
    found = {}
    chosen = top_p or model.default_top_p
    with progress(len(prompts) * len(chosen), "text", name) as bar:
        for share in chosen:
            found[name, f"top-p {share:g}"] = copies.samples(model, prompts, settings, share, bar)
    return found


def with_copies(results: Sequence[Result], found: Mapping[tuple[str, str], Copies]) -> list[Result]:
    """Return results with the copies of each model by sampling setting, and a result for held-out text."""
    rows = [*results, Result(copies.HELD_OUT, None, None)]
    return [
        replace(row, copies={setting: each for (name, setting), each in found.items() if name == row.model} or None)
        for row in rows
    ]


def table(results: Sequence[Result]) -> str:
    """Return the figures of all models as text tables."""
    measured = [(result.model, result.bits) for result in results if result.bits]
    judged = {result.model: result.minimal_pairs for result in results if result.minimal_pairs}
    parts = []
    if measured:
        sizes = vars(measured[0][1])
        head = tr("{documents:,} documents, {characters:,} raw characters, {bytes:,} bytes of UTF-8", **sizes)
        parts = [f"{head}\n{bits.table(measured)}"]
    if judged:
        parts.append(pairs.table(judged))
    if scored := {result.model: result.tasks for result in results if result.tasks}:
        parts.append(_tasks_table(scored))
    if searched := {result.model: result.copies for result in results if result.copies}:
        parts.append(copies.table(searched))
    return "\n\n".join(parts)


def _tasks_table(scored: "Mapping[str, Sequence[Score]]") -> str:
    """Return {model name: scores} as a text table: a line per metric of a task, a column per model."""
    rows = [[tr("task"), tr("metric"), tr("shots"), tr("examples"), *scored]]
    for at, first in enumerate(next(iter(scored.values()))):
        values = [_with_error(scores[at]) for scores in scored.values()]
        rows.append([first.task, first.metric, str(first.shots), str(first.examples or ""), *values])
    lines = aligned(rows, right=range(2, len(rows[0])))
    return "\n".join([*lines, tr("tasks by lm-evaluation-harness; ± is its standard error")])


def _with_error(score: "Score") -> str:
    """Return a value with its standard error, if it has one."""
    return f"{score.value:.3f}" if score.stderr is None else f"{score.value:.3f} ± {score.stderr:.3f}"


def to_dict(inputs: Inputs, results: Sequence[Result]) -> dict[str, Any]:
    """Return inputs and figures, for JSON."""
    models = [asdict(result) | {"bits": result.bits and result.bits.to_dict()} for result in results]
    window, stride = inputs.settings.window, inputs.settings.stride
    return {"data": [str(path) for path in inputs.files], "window": window, "stride": stride, "models": models}

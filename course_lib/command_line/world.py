"""Commands of the small world."""

from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from course_lib.command_line.options import Note, TextOutput, path
from course_lib.command_line.output import Shown
from course_lib.language.columns import padded
from course_lib.language.words import tr, tr_noop

# What `check` prints, for the translators: the rows of its table, and the names of facts and rules in the genres.
# fmt: off
NAMES = (
    tr_noop("texts"), tr_noop("sentences"), tr_noop("sentences of the world"), tr_noop("without contradiction"),
    tr_noop("copied"), tr_noop("longest copied span"), tr_noop("contradictions"), tr_noop("genres"), tr_noop("who"),
    tr_noop("animal"), tr_noop("pet"), tr_noop("item"), tr_noop("color"), tr_noop("place"), tr_noop("spot"),
    tr_noop("helper"), tr_noop("gift"), tr_noop("area"), tr_noop("season"), tr_noop("high"), tr_noop("low"),
    tr_noop("sky"), tr_noop("later"), tr_noop("wind"), tr_noop("force"), tr_noop("dish"), tr_noop("vegetable"),
    tr_noop("meat"), tr_noop("people"), tr_noop("count"), tr_noop("grams"), tr_noop("spoons"), tr_noop("added"),
    tr_noop("seasoning"), tr_noop("shape"), tr_noop("prepare"), tr_noop("minutes"), tr_noop("total"),
    tr_noop("liquid"), tr_noop("cups"), tr_noop("sport"), tr_noop("venue"), tr_noop("home"), tr_noop("away"),
    tr_noop("winner"), tr_noop("hero"), tr_noop("day"), tr_noop("friend"), tr_noop("deed"), tr_noop("meal"),
    tr_noop("next"), tr_noop("fruit"), tr_noop("more"), tr_noop("genre"), tr_noop("plot"), tr_noop("pet and animal"),
    tr_noop("color and item"), tr_noop("temperature and season"), tr_noop("low and high"), tr_noop("snow and cold"),
    tr_noop("change of sky"), tr_noop("warning and wind"), tr_noop("advice"), tr_noop("way and dish"),
    tr_noop("vegetable and dish"), tr_noop("grams and people"), tr_noop("count and people"),
    tr_noop("spoons and people"), tr_noop("cups and people"), tr_noop("minutes and dish"), tr_noop("sum of minutes"),
    tr_noop("winner and teams"), tr_noop("points"), tr_noop("deed and place"), tr_noop("place and sky"),
    tr_noop("rain"), tr_noop("snow"), tr_noop("mood"), tr_noop("sum"),
)
# fmt: on


def write(
    target: TextOutput,
    *,
    documents: Annotated[int, Option("--documents", min=1, help="number of documents")] = 12_000,
    seed: Annotated[
        int, Option("--seed", help="documents of two seeds differ; document i of a seed is always the same")
    ] = 0,
) -> dict[str, float]:
    """Write documents of the small world as JSON Lines: text, genre, facts, and bits = −log₂ of its probability."""
    from course_lib.world.genres import write_documents

    return write_documents(target, documents, seed)


def check(
    texts: Annotated[
        list[Path],
        Argument(
            metavar="TEXT",
            help="documents: .jsonl, or .txt with an empty line between; - reads standard input",
            parser=path,
        ),
        Note.INPUT_FILE,
    ],
    *,
    training: Annotated[
        list[Path] | None,
        Option("--training", help="what the texts may have been copied from; repeatable", parser=path),
    ] = None,
) -> Shown:
    """Check texts against the small world, and print the shares of sentences, facts and copies."""
    from course_lib.documents import read_texts
    from course_lib.world.check import table

    found = table([*chain.from_iterable(map(read_texts, texts))], chain.from_iterable(map(read_texts, training or [])))
    lines = [
        f"{padded(tr(name), '<24')} {value:.1%}" if isinstance(value, float) else f"{padded(tr(name), '<24')} {value:,}"
        for name, value in found.items()
        if not isinstance(value, dict)
    ]
    for name in ("genres", "contradictions"):
        lines += [f"{tr(name)}: " + ", ".join(f"{tr(kind)} {count}" for kind, count in found[name].items())]
    return Shown(found, "\n".join(lines))

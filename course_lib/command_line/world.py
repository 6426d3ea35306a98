"""Verbs of the small world."""

from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from course_lib.command_line.options import Note, TextOutput, path
from course_lib.command_line.output import Shown
from course_lib.language.columns import padded
from course_lib.language.words import mark, tr

# What `check` prints, for the translators: the rows of its table, and the names of facts and rules in the genres.
# fmt: off
NAMES = (
    mark("texts"), mark("sentences"), mark("sentences of the world"), mark("without contradiction"),
    mark("copied"), mark("longest copied span"), mark("contradictions"), mark("genres"), mark("who"),
    mark("animal"), mark("pet"), mark("item"), mark("color"), mark("place"), mark("spot"), mark("helper"),
    mark("gift"), mark("area"), mark("season"), mark("high"), mark("low"), mark("sky"), mark("later"),
    mark("wind"), mark("force"), mark("dish"), mark("vegetable"), mark("meat"), mark("people"), mark("count"),
    mark("grams"), mark("spoons"), mark("added"), mark("seasoning"), mark("shape"), mark("prepare"),
    mark("minutes"), mark("total"), mark("liquid"), mark("cups"), mark("sport"), mark("venue"), mark("home"),
    mark("away"), mark("winner"), mark("hero"), mark("weekday"), mark("friend"), mark("deed"), mark("meal"),
    mark("next"), mark("fruit"), mark("more"), mark("genre"), mark("plot"), mark("pet and animal"),
    mark("color and item"), mark("temperature and season"), mark("low and high"), mark("snow and cold"),
    mark("change of sky"), mark("warning and wind"), mark("advice"), mark("way and dish"),
    mark("vegetable and dish"), mark("grams and people"), mark("count and people"), mark("spoons and people"),
    mark("cups and people"), mark("minutes and dish"), mark("sum of minutes"), mark("winner and teams"),
    mark("points"), mark("deed and place"), mark("place and sky"), mark("rain"), mark("snow"), mark("mood"),
    mark("sum"),
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

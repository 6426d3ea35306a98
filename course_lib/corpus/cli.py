"""Commands for chapter 1: `course corpus download`, `wikipedia` and `webtext`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from course_lib.command_line import options
from course_lib.corpus.config import Dataset, DownloadConfig, WebtextConfig, WikipediaConfig

if TYPE_CHECKING:
    from course_lib.corpus.report import Report


def download(
    dataset: Annotated[Dataset, typer.Argument(help="jawiki: Japanese Wikipedia; cc100: web text")],
    date: Annotated[
        str, typer.Option("--date", metavar="D", help="day of the dump, such as 20261101, or latest")
    ] = "latest",
    part: Annotated[
        int | None,
        typer.Option("--part", min=1, metavar="N", help="jawiki: only one part of the dump"),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="folder for the file")] = Path(
        "downloads"
    ),
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Download a dump and verify it; an interrupted download is resumed."""
    from course_lib.corpus.download import download as fetch

    fetch(dataset, output, date, options.settings(DownloadConfig, "corpus.download", config, overrides), part)


def wikipedia(
    dumps: Annotated[list[Path], typer.Argument(metavar="DUMP...", help=".xml, .xml.gz, .xml.bz2 or .xml.xz")],
    output: options.Output,
    workers: options.Workers = options.WORKERS,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Extract the articles of a Wikipedia dump as plain text."""
    from course_lib.corpus.wikipedia import extract

    report = extract(dumps, output, options.settings(WikipediaConfig, "corpus.wikipedia", config, overrides), workers)
    print(f"{report.summary()} → {output}{_reported(report, output)}")


def webtext(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help=".txt, plain or compressed, with an empty line between documents"),
    ],
    output: options.Output,
    workers: options.Workers = options.WORKERS,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Filter web text and remove duplicates."""
    from course_lib.corpus.webtext import clean_webtext

    settings = options.settings(WebtextConfig, "corpus.webtext", config, overrides)
    report = clean_webtext(sources, output, settings, workers)
    print(f"{report.summary()} → {output}{_reported(report, output)}")


def _reported(report: "Report", output: Path) -> str:
    """Write the report to a file next to the output. Return ", " and the file name, to be appended to the summary.

    If the output is a device or pipe, write no report and return "", because a folder such as /dev is not a place for
    user files.
    """
    from course_lib.corpus.report import write_report
    from course_lib.files import is_stream

    return "" if is_stream(output) else f", {write_report(report, output).name}"

"""Products for chapter 1: clean documents from Wikipedia and web text."""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.corpus.config import Dataset, DownloadConfig, Sources, WebtextConfig, WikipediaConfig
from course_lib.corpus.report import Report, write_report
from course_lib.parallel import default_workers
from course_lib.paths import data, root
from course_lib.workspace import Definition, Product, product

# File name inside each product.
DOCUMENTS = "documents.jsonl"


def products() -> list[Product]:
    """Return the chapter's products for the current profile, in build order."""
    sources = config.section("corpus.sources", Sources)
    downloads = ((JAWIKI, sources.wikipedia), (CC100, sources.webtext))
    return [*(product for product, kind in downloads if kind == "download"), WIKIPEDIA, WEBTEXT]


@product("corpus/jawiki")
def JAWIKI() -> Definition:
    """The downloaded Japanese Wikipedia dump."""
    return _download_of("jawiki", str(config.section("corpus.sources", Sources).date))


@product("corpus/cc100")
def CC100() -> Definition:
    """The downloaded web text."""
    return _download_of("cc100", "latest")


@product("corpus/wikipedia")
def WIKIPEDIA() -> Definition:
    """The articles from the dump as clean documents."""
    settings = config.section("corpus.wikipedia", WikipediaConfig)
    kind = config.section("corpus.sources", Sources).wikipedia
    dump = JAWIKI if kind == "download" else data("jawiki-sample.xml.bz2")
    return Definition(partial(_wikipedia, settings), settings, (dump,), ("corpus",))


@product("corpus/webtext")
def WEBTEXT() -> Definition:
    """The filtered and deduplicated web text."""
    settings = config.section("corpus.webtext", WebtextConfig)
    kind = config.section("corpus.sources", Sources).webtext
    crawl = CC100 if kind == "download" else data("webtext-sample.txt.xz")
    return Definition(partial(_webtext, settings), settings, (crawl,), ("corpus",))


def _download_of(dataset: Dataset, date: str) -> Definition:
    settings = config.section("corpus.download", DownloadConfig)
    recorded = {"dataset": dataset, "date": date} | config.to_dict(settings)
    return Definition(partial(_download, settings, dataset, date), recorded, ())


def _download(
    settings: DownloadConfig, dataset: Dataset, date: str, folder: Path, _inputs: list[Path]
) -> dict[str, Any]:
    from course_lib.corpus.download import download

    # Download outside the chapter's folder, so that an interrupted download can be resumed and `course clean` does not
    # delete the file.
    path = download(dataset, root() / "downloads", date, settings)
    (folder / path.name).hardlink_to(path)
    return {"bytes": path.stat().st_size}


def _wikipedia(settings: WikipediaConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.corpus.wikipedia import extract

    return _reported(extract(_file(inputs[0]), folder / DOCUMENTS, settings, default_workers()), folder)


def _webtext(settings: WebtextConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.corpus.webtext import clean_webtext

    return _reported(clean_webtext(_file(inputs[0]), folder / DOCUMENTS, settings, default_workers()), folder)


def _reported(report: Report, folder: Path) -> dict[str, Any]:
    write_report(report, folder / DOCUMENTS)
    return {"documents in": report.documents_in, "out": report.documents_out, "characters": report.characters_out}


def _file(source: Path) -> Path:
    """Return `source` itself if it is a file, else the one downloaded file in the `source` folder."""
    return source if source.is_file() else next(path for path in source.iterdir() if path.suffix in (".bz2", ".xz"))

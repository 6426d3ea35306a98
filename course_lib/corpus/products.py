"""Products of chapter 1: clean documents from Wikipedia and from web text."""

from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.corpus.config import Dataset, DownloadConfig, Sources, WebtextConfig, WikipediaConfig
from course_lib.corpus.report import Report, write_report
from course_lib.parallel import default_workers
from course_lib.paths import data, root
from course_lib.product import Product

BUNDLED: dict[Dataset, str] = {"jawiki": "jawiki-sample.xml.bz2", "cc100": "webtext-sample.txt.xz"}
# The file name inside each product.
DOCUMENTS = "documents.jsonl"


def products() -> list[Product]:
    """Return the products corpus/wikipedia and corpus/webtext, after their downloads if the profile asks for them."""
    sources = config.section("corpus.sources", Sources)
    wikipedia = config.section("corpus.wikipedia", WikipediaConfig)
    webtext = config.section("corpus.webtext", WebtextConfig)
    dump, pages = _raw("jawiki", sources.wikipedia), _raw("cc100", sources.webtext)
    return [
        *_download_step("jawiki", sources.wikipedia, str(sources.date)),
        *_download_step("cc100", sources.webtext, "latest"),
        Product("corpus/wikipedia", partial(_wikipedia, wikipedia), wikipedia, (dump,), ("corpus",)),
        Product("corpus/webtext", partial(_webtext, webtext), webtext, (pages,), ("corpus",)),
    ]


def _download_step(dataset: Dataset, kind: str, date: str) -> list[Product]:
    if kind != "download":
        return []
    settings = config.section("corpus.download", DownloadConfig)
    recorded = {"dataset": dataset, "date": date} | config.to_dict(settings)
    return [Product(f"corpus/{dataset}", partial(_download, settings, dataset, date), recorded, ())]


def _raw(dataset: Dataset, kind: str) -> Path | str:
    return f"corpus/{dataset}" if kind == "download" else data(BUNDLED[dataset])


def _download(
    settings: DownloadConfig, dataset: Dataset, date: str, folder: Path, _inputs: list[Path]
) -> dict[str, Any]:
    from course_lib.corpus.download import download

    # not in the chapter's folder: an interrupted download can be resumed, and `course clean` does not delete the file
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
    """Return `source` itself if it is a file, else the one downloaded file in the folder `source`."""
    return source if source.is_file() else next(path for path in source.iterdir() if path.suffix in (".bz2", ".xz"))

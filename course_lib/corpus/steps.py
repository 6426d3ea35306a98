"""Products of chapter 1: clean documents from the encyclopaedia and from web text."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from course_lib import config, workspace
from course_lib.config import STRICT, setting
from course_lib.corpus.config import DownloadConfig, WebtextConfig, WikipediaConfig
from course_lib.parallel import default_workers
from course_lib.workspace import Step


@dataclass(frozen=True, config=STRICT)
class Sources:
    """Where a profile's raw text comes from."""

    wikipedia: Literal["bundled", "download"] = setting("bundled", "the sample in data/, or the real dump")
    webtext: Literal["bundled", "download"] = setting("bundled", "the sample in data/, or CC-100")
    date: str = setting("latest", "date of the Wikipedia dump, as 20261101, or latest")


Dataset = Literal["jawiki", "cc100"]
BUNDLED: dict[Dataset, str] = {"jawiki": "jawiki-sample.xml.bz2", "cc100": "webtext-sample.txt.xz"}
DOCUMENTS = "documents.jsonl"  # the file inside each product


def steps() -> list[Step]:
    """wikipedia and webtext; before them their downloads where the profile asks for the real thing."""
    sources = config.section("corpus.sources", Sources)
    made = []
    plan: tuple[tuple[str, Dataset, str], ...] = (
        ("wikipedia", "jawiki", sources.wikipedia),
        ("webtext", "cc100", sources.webtext),
    )
    for name, dataset, kind in plan:
        raw: Path | str = workspace.data(BUNDLED[dataset]) if kind == "bundled" else f"corpus/{dataset}"
        if isinstance(raw, str):
            made.append(
                Step(
                    raw,
                    partial(_download, dataset, sources.date),
                    config.section("corpus.download", DownloadConfig),
                    (),
                )
            )
        build, cls = (_wikipedia, WikipediaConfig) if name == "wikipedia" else (_webtext, WebtextConfig)
        made.append(Step(f"corpus/{name}", build, config.section(f"corpus.{name}", cls), (raw,), ("corpus",)))
    return made


def _download(dataset: Dataset, date: str, folder: Path, _inputs: list[Path]) -> dict[str, Any]:
    from course_lib.corpus.download import download

    # outside of the chapter: a broken download is resumed, and `course clean` does not cost another one
    path = download(dataset, workspace.root() / "downloads", date, config.section("corpus.download", DownloadConfig))
    (folder / path.name).hardlink_to(path)
    return {"bytes": path.stat().st_size}


def _wikipedia(folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.corpus.wikipedia import extract

    settings = config.section("corpus.wikipedia", WikipediaConfig)
    return extract(_raw(inputs[0]), folder / DOCUMENTS, settings, default_workers()).to_dict()


def _webtext(folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.corpus.webtext import clean_webtext

    settings = config.section("corpus.webtext", WebtextConfig)
    return clean_webtext(_raw(inputs[0]), folder / DOCUMENTS, settings, default_workers()).to_dict()


def _raw(source: Path) -> Path:
    """The file itself, or the one file of a download's product."""
    return source if source.is_file() else next(path for path in source.iterdir() if path.suffix in (".bz2", ".xz"))

"""Products for chapter 1: clean documents from Wikipedia, web text and the small world.

A *document* is a text, one line of the file DOCUMENTS of a product. *Given* documents are those in the files that
`corpus.sources.documents` of a profile names: they need no cleaning.
"""

from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from course_lib.corpus.config import (
    DOWNLOAD_SECTION,
    SOURCES_SECTION,
    WEBTEXT_SECTION,
    WIKIPEDIA_SECTION,
    Sources,
    WebtextConfig,
    WikipediaConfig,
)
from course_lib.corpus.report import CorpusReport, write_report
from course_lib.documents import read_texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import inner_suffix, link_or_copy
from course_lib.language.words import tr, tr_noop
from course_lib.parallel import default_workers
from course_lib.paths import REPOSITORY, data, root
from course_lib.settings import config, profiles
from course_lib.workspace.products import Product

# Modules that write the documents of the small world.
GENRES = ("tale", "weather", "recipe", "match", "day")
GENERATOR = tuple(f"world/{name}.py" for name in ("genre", "genres", *GENRES))
# File name inside each product.
DOCUMENTS = "documents.jsonl"


def user_files(sources: Sources) -> tuple[Path, ...]:
    """Return the user's text files, sorted within each pattern, without hidden files."""
    found: list[Path] = []
    for pattern in sources.files:
        path = profiles.beside(pattern)
        files = [path] if path.is_file() else sorted(filter(Path.is_file, path.parent.glob(path.name)))
        matches = [file for file in files if not file.name.startswith(".")]
        if not matches:
            message = tr_noop("corpus.sources: files: {path} matches no file; put .txt or .jsonl files there")
            raise UsageError(tr(message, path=path))
        for file in matches:
            require_text(file)
        found += [file for file in matches if file not in found]
    return tuple(found)


def require_text(path: Path) -> None:
    """Raise UsageError if a file is neither .txt nor .jsonl, plain or compressed."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name the files in it")
    if inner_suffix(path) not in (".txt", ".jsonl"):
        raise UsageError(f"{path}: is neither .txt nor .jsonl, plain or compressed; convert or remove it")


def _webtext_inputs() -> tuple[Path | Product, ...]:
    sources = SOURCES_SECTION.read()
    if sources.webtext == "files":
        return user_files(sources)
    return (CC100 if sources.webtext == "download" else data("webtext-sample.txt.xz"),)


def _download(folder: Path, _inputs: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    from course_lib.corpus.download import download

    # Download outside the chapter's folder, so that an interrupted download can be resumed and `course clean` does not
    # delete the file.
    downloading = DOWNLOAD_SECTION.read()
    path = download(settings["dataset"], root() / "downloads", settings["date"], downloading, settings.get("part"))
    link_or_copy(path, folder / path.name)
    return {"bytes": path.stat().st_size}


def _wikipedia(folder: Path, inputs: list[Path], settings: WikipediaConfig) -> dict[str, Any]:
    from course_lib.corpus.wikipedia import extract

    return _reported(extract(_file(inputs[0]), folder / DOCUMENTS, settings, default_workers()), folder)


def _webtext(folder: Path, inputs: list[Path], settings: WebtextConfig) -> dict[str, Any]:
    from course_lib.corpus.webtext import clean_webtext

    if SOURCES_SECTION.read().webtext != "files":
        return _reported(clean_webtext(_file(inputs[0]), folder / DOCUMENTS, settings, default_workers()), folder)
    # The documents of all files in the form of web text.
    texts = folder / "texts.txt"
    with open(texts, "w", encoding="utf8") as file:
        for source in inputs:
            for text in read_texts(source):
                # An empty line would start another document.
                file.writelines(f"{line}\n" for line in text.splitlines() if line.strip())
                file.write("\n")
    report = clean_webtext(texts, folder / DOCUMENTS, settings, default_workers())
    texts.unlink()
    if not report.documents_out:
        reasons = ", ".join(f"{reason} {removed.count}" for reason, removed in report.removed.items() if removed.count)
        raise CourseError(
            tr("corpus.webtext: no document left of {number} ({reasons}); lower the filters' limits "
               "(course corpus webtext --help) or add text", number=report.documents_in, reasons=reasons)
        )  # fmt: skip
    return _reported(replace(report, source=", ".join(source.name for source in inputs)), folder)


def _world(folder: Path, _inputs: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    from course_lib.world.genres import write_documents

    return write_documents(folder / DOCUMENTS, settings["documents"], settings["seed"])


def _world_settings() -> dict[str, Any]:
    if not (number := SOURCES_SECTION.read().world):
        raise UsageError(
            f"product 'corpus/world' does not exist in profile {profiles.current_name()}, "
            "whose corpus.sources.world is 0"
        )
    return {"documents": number, "seed": 0}


def _given(folder: Path, inputs: list[Path], _settings: Any) -> dict[str, Any]:
    number = characters = 0
    with open(folder / DOCUMENTS, "wb") as file:
        for text in chain.from_iterable(map(read_texts, inputs)):
            file.write(orjson.dumps({"text": text}) + b"\n")
            number, characters = number + 1, characters + len(text)
    return {"documents": number, "characters": characters}


def given_files() -> tuple[Path, ...]:
    """Return the profile's files of given documents, beside its file or, for notebooks, in the checkout."""
    found = [(profiles.beside(name), REPOSITORY / name) for name in SOURCES_SECTION.read().documents]
    return tuple(first if first.exists() or not second.exists() else second for first, second in found)


def _given_inputs() -> tuple[Path, ...]:
    if not (files := given_files()):
        raise UsageError(
            f"product 'corpus/documents' does not exist in profile {profiles.current_name()}, "
            "whose corpus.sources.documents is empty"
        )
    return files


def _reported(report: CorpusReport, folder: Path) -> dict[str, Any]:
    write_report(report, folder / DOCUMENTS)
    return {"documents in": report.documents_in, "out": report.documents_out, "characters": report.characters_out}


def _file(source: Path) -> Path:
    """Return `source` itself if it is a file, else the one downloaded file in the `source` folder."""
    return source if source.is_file() else next(path for path in source.iterdir() if path.suffix in (".bz2", ".xz"))


def _downloaded(dataset: str) -> dict[str, Any]:
    sources = SOURCES_SECTION.read()
    recorded: dict[str, Any] = {"dataset": dataset, "date": "latest"}
    if dataset == "jawiki":
        recorded |= {"date": str(sources.date)} | ({"part": sources.part} if sources.part else {})
    return recorded | config.to_dict(DOWNLOAD_SECTION.read())


# The downloaded Japanese Wikipedia dump.
JAWIKI = Product("corpus/jawiki", build=_download, settings=partial(_downloaded, "jawiki"))
# The downloaded web text.
CC100 = Product("corpus/cc100", build=_download, settings=partial(_downloaded, "cc100"))
# The articles from the dump as clean documents.
WIKIPEDIA = Product(
    "corpus/wikipedia",
    build=_wikipedia,
    settings=WIKIPEDIA_SECTION.read,
    inputs=lambda: (JAWIKI if SOURCES_SECTION.read().wikipedia == "download" else data("jawiki-sample.xml.bz2"),),
    code=("corpus",),
)
# The filtered and deduplicated web text, or the user's texts.
WEBTEXT = Product(
    "corpus/webtext",
    build=_webtext,
    settings=WEBTEXT_SECTION.read,
    inputs=_webtext_inputs,
    code=("corpus",),
)
# The documents of the small world, which need no cleaning; without near-duplicates their probabilities would be others.
WORLD = Product("corpus/world", build=_world, settings=_world_settings, code=GENERATOR)

# The given documents, of all files.
GIVEN = Product("corpus/documents", build=_given, inputs=_given_inputs, code=("corpus/products.py",))


def has_given() -> bool:
    """Return whether the profile has given documents, which its GPT-2 then learns."""
    return bool(SOURCES_SECTION.read().documents)


def has_world() -> bool:
    """Return whether the profile's models learn the small world."""
    return SOURCES_SECTION.read().world > 0


def texts() -> tuple[Product, ...]:
    """Return the texts that the profile's GPT-2 learns: the given documents if there are any, else those of GPTSAN."""
    return (GIVEN,) if has_given() else texts_of_gptsan()


def texts_of_gptsan() -> tuple[Product, ...]:
    """Return the texts that the profile's GPTSAN learns: the small world if it has one, else the two corpora."""
    return (WORLD,) if has_world() else (WIKIPEDIA, WEBTEXT)


def products() -> list[Product]:
    """Return the chapter's products for the current profile, in build order."""
    sources = SOURCES_SECTION.read()
    downloads = ((JAWIKI, sources.wikipedia), (CC100, sources.webtext))
    downloaded = [product for product, kind in downloads if kind == "download"]
    return list(dict.fromkeys([*downloaded, WIKIPEDIA, WEBTEXT, *texts()]))

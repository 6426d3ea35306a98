"""The model that comes with the course: `aozora`, a GPT-2 that writes Japanese. Its card is data/aozora/README.md.

    Generator(aozora.folder(), text_codec.load).generate(["昔々、"])

Two prefixes lie beside it, in `prefixes`: `dowa` writes fairy tales, `tantei` detective stories. A checkout has its
weights (50.7 MB). An installed course has all but the weights, and takes them from the page of its
release when they are first needed.
"""

import filecmp
import hashlib
import shutil
from importlib.metadata import metadata
from pathlib import Path

from course_lib import __version__, files, paths
from course_lib.errors import CourseError, notify, one_line
from course_lib.language.words import language, tr, tr_noop
from course_lib.notebooks.progress import progress

NAME, WEIGHTS, CARD = "aozora", "model.safetensors", "README.md"
# The weights' name on the page of a release (docs/course_release/archives.py), and their SHA-256.
ASSET = "aozora.safetensors"
DIGEST = "40226fa0bcea35990dd42e34e0ec7df17868767428dbb2810bd85f297f1ddc64"


def folder() -> Path:
    """Return the folder of the model; in an installed course, the first call downloads its weights.

    Raises CourseError if they cannot be downloaded, or are not those of this version.
    """
    bundled = paths.data(f"{NAME}/config.json").parent
    if (bundled / WEIGHTS).is_file():
        return bundled
    place = _downloaded()
    place.mkdir(parents=True, exist_ok=True)
    for source in filter(Path.is_file, bundled.rglob("*")):
        target = place / source.relative_to(bundled)
        target.parent.mkdir(exist_ok=True)
        if not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            with files.atomic_write(target) as file, source.open("rb") as content:
                shutil.copyfileobj(content, file)
    # Those of another version are replaced.
    if not (place / WEIGHTS).is_file() or files.sha256(place / WEIGHTS) != DIGEST:
        _download(place / WEIGHTS)
    return place


def _downloaded() -> Path:
    """Return the folder of the model in an installed course, beside the workspaces of the profiles."""
    return paths.root().parent / "published" / NAME


def named(model: Path) -> Path:
    """Return the folder of the model that a command names: `aozora` is that of the course, if there is no other here.

    Where a folder of this name is in the current folder, that one is meant, and a line says so.
    """
    if model != Path(NAME):
        return model
    if not model.is_dir():
        return folder()
    if not is_ours(model):
        notify(tr("{name}: the folder of this name here, not the model that comes with the course", name=NAME))
    return model


def is_ours(model: Path) -> bool:
    """Return whether a folder is that of the course's model."""
    bundled = [place / "data" / NAME for place in (paths.REPOSITORY, Path(paths.__file__).parent)]
    return model.resolve() in [place.resolve() for place in (*bundled, _downloaded())]


def tell(model: Path) -> None:
    """Print one line on the course's model, if a folder is that one."""
    if is_ours(model):
        notify(about(model))


def about(model: Path) -> str:
    """Return one line on the course's model, which is in this folder."""
    message = tr_noop(
        "aozora: a GPT-2 of 25.3 M parameters that learned Japanese books of about 1890 to 1960; "
        "what it writes is made up, and speaks of people as those books do; its card: {card}"
    )
    return tr(message, card=card(model))


def card(model: Path) -> Path:
    """Return the card of the course's model, which is in this folder: in the reader's language, else in English."""
    edition = model / f"README.{language()}.md"
    return edition if edition.is_file() else model / CARD


def _download(target: Path) -> None:
    """Download the weights of this version. Raises CourseError, which says what else can be done."""
    import httpx

    repository = metadata("japanese-lm-course")["Project-URL"].partition(", ")[2]
    url = f"{repository}/releases/download/v{__version__}/{ASSET}"
    digest = hashlib.sha256()
    try:
        with files.atomic_write(target) as file, httpx.stream("GET", url, timeout=30, follow_redirects=True) as answer:
            size = answer.raise_for_status().headers.get("Content-Length")
            with progress(int(size) if size else None, "B", NAME) as bar:
                for chunk in answer.iter_bytes():
                    digest.update(chunk)
                    file.write(chunk)
                    bar.update(len(chunk))
            if digest.hexdigest() != DIGEST:
                raise CourseError(tr("its SHA-256 is not that of this version's weights"))
    except (httpx.HTTPError, httpx.InvalidURL, CourseError) as error:
        if isinstance(error, httpx.HTTPStatusError):
            reason = tr("the server answered {code}", code=error.response.status_code)
        else:
            reason = one_line(error)
        message = tr_noop(
            "aozora: its weights are not installed, and {url} cannot be used: {reason}; "
            "put data/aozora/{file} of a clone of {repository} into {folder}"
        )
        fields = {"url": url, "reason": reason, "file": WEIGHTS, "repository": repository, "folder": target.parent}
        raise CourseError(tr(message, **fields)) from None

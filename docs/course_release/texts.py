"""What the repository's texts say about the version: course_lib, CHANGELOG.md and CITATION.cff must agree."""

import re
from dataclasses import dataclass
from pathlib import Path

from course_lib import __version__
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_write
from course_lib.paths import REPOSITORY

# The pattern of the Citation File Format, https://github.com/citation-file-format/citation-file-format
DOI = re.compile(r"10\.\d{4,9}(\.\d+)?/[A-Za-z0-9:/_;\-.()\[\]\\]+")


@dataclass(frozen=True)
class Release:
    """A version, its date (YYYY-MM-DD) and its section of the changelog without the heading, as Markdown."""

    version: str
    date: str
    notes: str


def read(folder: Path = REPOSITORY, version: str = __version__) -> Release:
    """Return the release that the texts in a folder describe. Raises CourseError if they name other versions."""
    changelog = (folder / "CHANGELOG.md").read_text(encoding="utf8")
    sections = re.split(r"^## ", changelog, flags=re.M)[1:]
    heading, _, body = (sections or [""])[0].partition("\n")
    found = re.fullmatch(rf"\[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)", heading)
    if found is None:
        wanted = f"## [{version}] - YYYY-MM-DD"
        raise CourseError(f"CHANGELOG.md: the first section is {heading!r}; for this version it is {wanted!r}")
    citation = (folder / "CITATION.cff").read_text(encoding="utf8")
    for key, value in (("version", version), ("date-released", found[1])):
        if not re.search(rf"^{key}: {re.escape(value)}$", citation, re.M):
            raise CourseError(f"CITATION.cff: {key} is not {value}, as in CHANGELOG.md")
    # The changelog ends with the addresses of its headings.
    return Release(version, found[1], re.sub(r"^\[.*?\]: \S+\n", "", body, flags=re.M).strip() + "\n")


def write_doi(doi: str, folder: Path = REPOSITORY) -> None:
    """Write a DOI into CITATION.cff, instead of an earlier one."""
    if not DOI.fullmatch(doi):
        raise UsageError(f"--doi {doi}: is no DOI; allowed: 10.NNNN/NAME, such as 10.5281/zenodo.1234567")
    path = folder / "CITATION.cff"
    text, number = re.subn(r"^(?:# )?doi:.*$", lambda _: f"doi: {doi}", path.read_text(encoding="utf8"), flags=re.M)
    if number != 1:
        raise CourseError(f"{path}: has {number} lines 'doi: …'; expected one, which may be a comment")
    with atomic_write(path) as file:
        file.write(text.encode())

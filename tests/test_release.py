"""A release: texts that disagree, packages with other files than the commit, and archives with wrong checksums are refused."""

import io
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from course_lib import __version__, paths
from course_lib.errors import CourseError, UsageError

from course_release import archives, packages, texts

COMMIT = {
    "course_lib/__init__.py": b"version",
    "data/list.csv": b"data",
    "notebooks/01.ipynb": b"with outputs",
    "pyproject.toml": b"project",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("CHANGELOG.md", "CITATION.cff"):
        shutil.copy(paths.REPOSITORY / name, tmp_path)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf8")


def test_the_texts_name_one_version() -> None:
    changelog = (paths.REPOSITORY / "CHANGELOG.md").read_text(encoding="utf8")
    assert re.search(rf"^## \[{re.escape(__version__)}\]", changelog, re.M) and "Unreleased" not in changelog


def test_notes_are_the_section_of_the_changelog(folder: Path) -> None:
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## [1.1.0] - 2027-01-31\n\n### Added\n\n- New.\n\n"
                                         "## [1.0.0] - 2026-11-28\n\n- Old.\n\n[1.1.0]: https://a/b\n")  # fmt: skip
    (folder / "CITATION.cff").write_text("version: 1.1.0\ndate-released: 2027-01-31\n")
    assert texts.read(folder, "1.1.0") == texts.Release("1.1.0", "2027-01-31", "### Added\n\n- New.\n")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("CHANGELOG.md", "## [9.9.9] - ", "## [Unreleased]\n\n## [9.9.9] - ", "first section is '[Unreleased]'"),
        ("CHANGELOG.md", "## [9.9.9] - 2027-01-31", "## [9.9.9]", "for this version it is '## [9.9.9] - YYYY-MM-DD'"),
        ("CITATION.cff", "version: 9.9.9", "version: 9.9.8", "version is not 9.9.9"),
        ("CITATION.cff", "date-released: 2027-01-31", "date-released: 2027-01-30", "date-released is not 2027-01-31"),
    ],
)
def test_other_versions_are_refused(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [9.9.9] - 2027-01-31\n\n- New.\n")
    (tmp_path / "CITATION.cff").write_text("version: 9.9.9\ndate-released: 2027-01-31\n")
    texts.read(tmp_path, "9.9.9")
    change(tmp_path / file, old, new)
    with pytest.raises(CourseError, match=re.escape(message)):
        texts.read(tmp_path, "9.9.9")


def test_a_doi_is_written_and_replaced(folder: Path) -> None:
    before = (folder / "CITATION.cff").read_text(encoding="utf8")
    for number in ("1234567", "1234568"):
        texts.write_doi(f"10.5281/zenodo.{number}", folder)
    text = (folder / "CITATION.cff").read_text(encoding="utf8")
    assert re.findall("^doi.*", text, re.M) == ["doi: 10.5281/zenodo.1234568"] and len(text) > len(before)
    with pytest.raises(UsageError, match="is no DOI"):
        texts.write_doi("https://doi.org/10.5281/zenodo.1", folder)


def test_a_tree_with_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "REPOSITORY", tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    packages.require_clean_tree()
    (tmp_path / "new.txt").touch()
    with pytest.raises(CourseError, match=r"1 changes are not committed, the first: \?\? new.txt"):
        packages.require_clean_tree()


def wheel(target: Path, packed: dict[str, bytes]) -> Path:
    with ZipFile(target / "a-1.0.0-py3-none-any.whl", "w") as archive:
        for name, content in (packed | {"a-1.0.0.dist-info/METADATA": b"meta"}).items():
            archive.writestr(name, content)
    return target / "a-1.0.0-py3-none-any.whl"


def sdist(target: Path, packed: dict[str, bytes]) -> Path:
    with tarfile.open(target / "a-1.0.0.tar.gz", "w:gz") as archive:
        for name, content in (packed | {"PKG-INFO": b"meta"}).items():
            member = tarfile.TarInfo(f"a-1.0.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target / "a-1.0.0.tar.gz"


def test_packages_with_other_files_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name, content in COMMIT.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    weights = source / packages.WEIGHTS
    weights.parent.mkdir()
    weights.write_bytes(b"in no package")
    library = {"course_lib/__init__.py": b"version", "course_lib/data/list.csv": b"data"}
    packages.compare(source, [wheel(tmp_path, library), sdist(tmp_path, COMMIT)])
    makes: list[tuple[Callable[[Path, dict[str, bytes]], Path], dict[str, bytes]]] = [(wheel, library), (sdist, COMMIT)]
    for make, packed in makes:
        *_, last = packed
        for wrong in (
            {**packed, last: b"x"},
            {**packed, "workspace/log": b""},
            {k: v for k, v in packed.items() if k != last},
        ):
            with pytest.raises(CourseError, match="1 files are not those of the commit"):
                packages.compare(source, [make(tmp_path, wrong)])


def test_an_archive_with_a_wrong_checksum_is_not_unpacked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, learner, course = tmp_path / "release", tmp_path / "learner", tmp_path / "bin/course"
    folder.mkdir()
    course.parent.mkdir()
    course.write_text("#!/bin/sh\ntouch was-run\n")
    course.chmod(0o755)
    (folder / "tiny-1.zip").write_bytes(b"damaged")
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  tiny-1.zip\n")
    with pytest.raises(CourseError, match="exit code 1"):
        archives.rehearse(folder, learner, course)
    assert "tiny-1.zip: FAILED" in capfd.readouterr().err
    assert sorted(path.name for path in learner.iterdir()) == ["SHA256SUMS", "tiny-1.zip"]
    # The server's thread has ended: with its socket closed, it would take a core until the end of the tests.
    assert not [thread for thread in threading.enumerate() if "serve_forever" in thread.name]


def test_the_page_tells_what_is_rehearsed() -> None:
    page = (paths.REPOSITORY / "docs/profiles.md").read_text(encoding="utf8")
    assert "".join(f"    {line}\n" for line in archives.COMMANDS.format(number=6).splitlines()) in page

"""A checkout in a folder with a Japanese name, under locales in which Python before 3.13 cannot read that name in a .pth file."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from course_lib.paths import REPOSITORY

# The package that hatchling calls for an editable install.
editables = pytest.importorskip("editables")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the course as hatchling installs it, and the packages of this one."""
    folder = tmp_path_factory.mktemp("checkout") / "日本語の箱"
    venv.create(folder / ".venv", symlinks=True)
    site = next((folder / ".venv").glob("lib/python*/site-packages"))
    (folder / "course_lib").symlink_to(REPOSITORY / "course_lib")
    project = editables.EditableProject("japanese-lm-course", folder)
    project.map("course_lib", "course_lib")
    for name, content in project.files():
        (site / name).write_text(content, encoding="utf8")
    # Not the course itself, nor what makes it importable here.
    for path in {*Path(sysconfig.get_path("purelib")).iterdir(), Path(editables.__file__).parent}:
        if path.suffix != ".pth" and not path.name.startswith(("_editable", "course_lib")):
            (site / path.name).symlink_to(path)
    return folder / ".venv/bin/python"


@pytest.mark.parametrize("locale", ["C", "POSIX", "xx_XX.UTF-8", "C.UTF-8"])
def test_the_course_starts_in_a_japanese_folder(python: Path, locale: str, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LANG", "PYTHONUTF8")}
    words = [
        str(python),
        "-m",
        "course_lib.cli",
        "world",
        "write",
        "--documents",
        "1",
        "-o",
        str(tmp_path / "世界.jsonl"),
    ]
    done = subprocess.run(words, capture_output=True, env=clean | {"LC_ALL": locale}, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["世界.jsonl"]


def test_a_path_in_a_pth_file_would_not_do(python: Path, tmp_path: Path) -> None:
    """As hatchling writes it without dev-mode-exact."""
    venv.create(tmp_path / ".venv", symlinks=True)
    site = next((tmp_path / ".venv").glob("lib/python*/site-packages"))
    (site / "course.pth").write_text(f"{python.parents[2]}\n", encoding="utf8")
    command = [str(tmp_path / ".venv/bin/python"), "-c", ""]
    done = subprocess.run(command, capture_output=True, env={"LC_ALL": "C"}, cwd=tmp_path)
    assert (b"UnicodeDecodeError" in done.stderr) == (sys.version_info < (3, 13))


def test_the_checkout_is_installed_in_that_form() -> None:
    hatch = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf8"))["tool"]["hatch"]
    assert hatch["build"]["dev-mode-exact"] is True
    assert (
        "force-include" not in hatch["build"]["targets"]["wheel"]
    )  # it would hide the library behind site-packages/course_lib/data

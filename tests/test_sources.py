"""The code that a product is made by: which edits make it stale, and what a process records whose sources were edited."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from course_lib import paths
from course_lib.settings import profiles
from course_lib.workspace import chapters, sources

MODULE = '''"""A module."""

import math

# A comment.
RATE = 2.5


class Thing:
    """A thing."""

    size: int = 3

    def area(self, *sides: float, unit: str = "m") -> str:
        """Return the area."""
        if (total := math.prod(sides)) > 1:
            return f"{total:.2f} {unit}²"
        raise ValueError(rb"\\x00", -1j, None, ...)
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library with one package, as a process that starts now would load it."""
    (tmp_path / "part").mkdir()
    (tmp_path / "part/a.py").write_text(MODULE)
    monkeypatch.setattr(sources, "LIBRARY", tmp_path)
    return tmp_path


def digest(library: Path, monkeypatch: pytest.MonkeyPatch, name: str = "part") -> str:
    """The digest in a process that starts now."""
    loaded = {path: path.read_bytes() for path in sorted(library.rglob("*.*"))}
    monkeypatch.setattr(sources, "LOADED", {path: loaded[path] for path in loaded if path.suffix in (".py", ".tsv")})
    sources.digest.cache_clear()
    try:
        return sources.digest(name)
    finally:
        sources.digest.cache_clear()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# A comment.", "# Another comment."),
        ('"""A module."""\n', ""),
        ('    """A thing."""', '    """Something\n\n    else."""'),
        ("\n\n\n", "\n"),
        ('        if (total := math.prod(sides)) > 1:', '        if (\n            total := math.prod(sides)\n        ) > 1:'),
        ('"m"', "'m'"),
    ],
)  # fmt: skip
def test_an_edit_that_cannot_change_a_product_is_none(
    library: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    first = digest(library, monkeypatch)
    assert before in MODULE
    (library / "part/a.py").write_text(MODULE.replace(before, after))
    assert digest(library, monkeypatch) == first
    assert not sources.is_edited("part")


@pytest.mark.parametrize(
    ("before", "after"), [("2.5", "2.6"), ("size: int", "size: float"), ("total:.2f", "total:.3f"), ("None, ", "")]
)
def test_an_edit_of_equal_or_other_size_is_one(
    library: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    first = digest(library, monkeypatch)
    (library / "part/a.py").write_text(MODULE.replace(before, after))
    assert sources.is_edited("part")
    assert digest(library, monkeypatch) != first


def test_a_digest_is_the_same_in_every_version_of_python(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives of products are packed with one version and unpacked with another."""
    # As computed with 3.11.7, 3.12.1 and 3.13.0.
    expected = "73943cf08e25df805cdd07e6d374736c012d9ab4878f595e0d79089a2cc7f16c"
    assert digest(library, monkeypatch, "part/a.py") == expected


def test_a_package_is_its_modules_and_tables_without_figures(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = [digest(library, monkeypatch)]
    for name, content in (("b.py", "x = 1"), ("b.py", "x = 2"), ("names.tsv", "a\tb"), ("names.tsv", "a\tc")):
        (library / "part" / name).write_text(content)
        digests.append(digest(library, monkeypatch))
    assert len(set(digests)) == 5
    for name in ("figures.py", "diagrams.py", "notes.txt", "more/c.py"):
        (library / "part" / name).parent.mkdir(exist_ok=True)
        (library / "part" / name).write_text("x = 3")
        assert digest(library, monkeypatch) == digests[-1]


def test_a_source_that_is_half_written_is_edited(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest(library, monkeypatch)
    (library / "part/a.py").write_text("def area(")
    assert sources.is_edited("part/a.py") and sources.is_edited("part")


@pytest.mark.parametrize("profile", profiles.BUNDLED)
def test_every_source_of_a_product_exists(monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    monkeypatch.setenv("COURSE_PROFILE", profile)
    products = [each for chapter in chapters.CHAPTERS for each in (*chapter.products(), *chapter.executed())]
    names = {name for product in products for name in product.modules()}
    assert {"corpus", "models/causal.py", "notebooks"} <= names
    assert all(sources.digest(name) for name in names)
    with pytest.raises(FileNotFoundError, match=r"corpus/nothing\.py"):
        sources.digest("corpus/nothing.py")


# A kernel is open while somebody edits the library.

KERNEL = """
import os, sys
from pathlib import Path
from course_lib.workspace import sources
from course_lib.workspace.products import Product

assert sources.LIBRARY == Path.cwd() / "course_lib"

def edit():
    with (sources.LIBRARY / "world/genre.py").open("a") as file:
        file.write(os.environ["EDIT"])

def build(folder, inputs, settings):
    print("run", product.run_name())
    if "during" in sys.argv:
        edit()
    (folder / "text").write_text("one")
    return {}

product = Product("a/first", build, code=("world/genre.py",))
for word in sys.argv[1:]:
    if word == "before":
        edit()
    if word == "build":
        product.path()
    if word == "state":
        print(product.state())
"""


class Kernels:
    """Processes with a library of their own, which they edit."""

    def __init__(self, folder: Path) -> None:
        ignored = shutil.ignore_patterns("__pycache__", "drawings", "locale")
        shutil.copytree(paths.REPOSITORY / "course_lib", folder / "course_lib", ignore=ignored)
        self.folder = folder
        self.environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, words: str, edit: str = "\nMORE = 1\n") -> list[str]:
        """What a new process prints."""
        command = [sys.executable, "-c", KERNEL, *words.split()]
        environment = self.environment | {"EDIT": edit}
        # The current folder is searched first, and must not be the checkout.
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert not done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def kernels(tmp_path: Path) -> Kernels:
    return Kernels(tmp_path)


FRESH = "State(kind='fresh', reason='', outputs="
EDITED = "State(kind='stale', reason='the code of world/genre.py was edited during the build', outputs='')"


@pytest.mark.parametrize("when", ["before build", "build during"])
def test_what_a_kernel_built_whose_sources_were_edited_is_stale_for_others(kernels: Kernels, when: str) -> None:
    *said, state = kernels.run(f"{when} state")
    # In this process it is fresh, or each cell would build it again.
    assert state.startswith(FRESH)
    warned = said[0].startswith("world/genre.py was edited after this process loaded it; restart ")
    assert warned == (when == "before build")
    assert kernels.run("state") == [EDITED]
    said = kernels.run("build state build")
    assert said[0] == "building a/first (the code of world/genre.py was edited during the build)"
    assert len(said) == 3 and said[2].startswith(FRESH)


def test_a_comment_that_a_kernel_did_not_load_changes_nothing(kernels: Kernels) -> None:
    assert kernels.run("before build", edit="\n# A comment.\n")[0] == "building a/first (missing)"
    assert kernels.run("state")[0].startswith(FRESH)


def test_a_run_of_other_or_unknown_code_is_another_run(kernels: Kernels) -> None:
    """Or an edited loss would keep the weights of the earlier one."""
    runs = [kernels.run(words)[-1] for words in ("before build", "build")]
    kernels.run("before")
    runs.append(kernels.run("build")[-1])
    assert all(line.startswith("run ") for line in runs) and len(set(runs)) == 3

"""Every notebook gives its stored outputs (nbval, strict).

The notebooks share one workspace for the whole test session, so that each product is built once: by the notebook that needs
it first, while the others wait for its lock. One notebook also runs in an empty workspace.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from course_lib import paths
from course_lib.workspace.chapters import CHAPTERS

from tests.notebooks.claims import OF, cell
from tests.notebooks.rules import code_cells
from tests.words import edition
from tests.words.edition import skip_if_behind

NOTEBOOKS = {path.stem: path for chapter in CHAPTERS for path in chapter.paths}
SANITIZER = Path(__file__).with_name("sanitize.cfg")
ALONE = "02_normalize_and_segment"  # builds four products of two chapters in seconds


def run_nbval(notebook: Path, workspace: Path, **variables: str) -> None:
    """Runs a notebook in a workspace, and its claims behind it, with environment variables added.

    Raises AssertionError with nbval's report if an output differs from the stored one or a claim does not hold.
    """
    content = nbformat.read(notebook, as_version=4)
    content.cells += [cell(claims) for name, claims in OF.items() if name == notebook.stem]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"COURSE_WORKSPACE": str(workspace), **variables}
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(content, copy := Path(folder) / notebook.name)
        command = [sys.executable, "-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["--nbval-sanitize-with", str(SANITIZER), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.timeout(1500)
def test_outputs_are_as_stored(name: str, shared_workspace: Path) -> None:
    run_nbval(NOTEBOOKS[name], shared_workspace)


# AVX2 is what most laptops have. "default" has no vector instructions, and its sums are in yet another order.
@pytest.mark.rehearse
@pytest.mark.parametrize(("capability", "threads"), [("avx2", "1"), ("default", "2")])
@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.timeout(1500)
def test_outputs_are_as_stored_on_another_processor(
    name: str, capability: str, threads: str, shared_workspace: Path
) -> None:
    """The models are trained there, too: what is printed and claimed does not depend on the last bits of a training."""
    workspace = shared_workspace.with_name(f"workspace-{capability}-{threads}")
    run_nbval(NOTEBOOKS[name], workspace, ATEN_CPU_CAPABILITY=capability, OMP_NUM_THREADS=threads)


# `make test` runs two of them.
@pytest.mark.parametrize(
    "name", [name if name < "03" else pytest.param(name, marks=pytest.mark.rehearse) for name in NOTEBOOKS]
)
@pytest.mark.timeout(1500)
def test_japanese_outputs_are_as_stored(name: str, shared_workspace: Path) -> None:
    """The set-up cell sets the language. A cell whose code was changed has lost its output, which nbval does not miss."""
    skip_if_behind(edition.notebook(NOTEBOOKS[name]), "course_lib")
    notebook = paths.NOTEBOOKS / "ja" / f"{name}.ipynb"
    counts = [cell.execution_count for cell in code_cells(nbformat.read(notebook, as_version=4))]
    assert counts == [*range(1, len(counts) + 1)], "run `course notebooks --language ja --execute`"
    run_nbval(notebook, shared_workspace)


@pytest.mark.rehearse
def test_a_notebook_builds_what_is_missing(own_workspace: Path) -> None:
    run_nbval(NOTEBOOKS[ALONE], own_workspace)
    built = {str(path.parent.relative_to(own_workspace / "tiny")) for path in own_workspace.rglob("manifest.json")}
    assert built == {"corpus/wikipedia", "corpus/webtext", "japanese/wikipedia", "japanese/webtext"}

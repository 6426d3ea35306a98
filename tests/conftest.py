"""Shared by all tests: a workspace of their own, no profile from outside, and what pytest-xdist may run side by side."""

import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# No deadlines for hypothesis: on a busy machine any example may take long, and timeouts of tests name what hangs.
hypothesis.settings.register_profile("course", deadline=None)
hypothesis.settings.load_profile("course")

# A shell's background jobs ignore Ctrl-C, and those of nohup SIGHUP; so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

NOTEBOOKS = "tests/notebooks/test_nbval.py"
REHEARSAL = "tests/rehearsal/test_profiles.py"

# What only `make rehearse` runs: node ids begin with one of these. A single test elsewhere has the mark `rehearse`.
REHEARSE = (
    REHEARSAL,
    "tests/bench/",
    "tests/colab/",
    "tests/notebooks/test_jupyterlab.py",
    "tests/notebooks/test_progress_bar.py",
    "tests/scale/test_failures.py",
    "tests/scale/test_ray.py",
    "tests/scale/test_s3.py",
    "tests/scale/test_slurm.py",
    "tests/serving/test_demo_page.py",
    "tests/serving/test_load.py",
    "tests/site/",
    "tests/test_cache.py",
    "tests/test_release.py",
    "tests/test_slides.py",
    "tests/test_wheelhouse.py",
    "tests/training/test_slurm.py",
)

KNOWN_ANSWER = "tests/notebooks/test_known_answer.py"

# Files whose tests start ranks, servers or other processes, train, or load models: left out of `make check`. The slowest first.
SLOW = (
    *REHEARSE,
    KNOWN_ANSWER,
    NOTEBOOKS,
    "tests/pretrain/test_training.py",
    "tests/gptsan/test_training.py",
    "tests/prefix/test_training.py",
    "tests/serving/",
    "tests/scale/",
    "tests/gptsan/",
    "tests/prefix/",
    "tests/pretrain/",
    "tests/training/",
    "tests/generation/test_generator",
    "tests/generation/test_prefix_cache.py",
    "tests/models/",
    "tests/evaluation/test_causal.py",
    "tests/evaluation/test_harness.py",
    "tests/evaluation/test_tasks.py",
    "tests/evaluation/test_command.py",
    "tests/subword/test_unseen.py",
    "tests/world/",
    "tests/checkpoints/",
    "tests/exercises/",
    "tests/corpus/test_download.py",
    "tests/japanese/test_jumanpp.py",
    "tests/test_cli.py",
    "tests/test_profile_cli.py",
    "tests/test_parallel.py",
    "tests/test_commands.py",
    "tests/test_sources.py",
    "tests/test_workspace.py",
)

# What `make check` runs of these all the same: each kind of run for a few steps, in process.
QUICK = (
    "tests/training/test_fp16.py",
    "tests/training/test_hardware.py",
    "tests/training/test_log.py",
    "tests/training/test_loop.py",
    "tests/training/test_lr_schedule.py",
    "tests/training/test_resume_tokenizer.py",
    "tests/training/test_runs_folder.py",
)

# What two workers do first, in an order in which they do not wait for each other's products, and not four ranks train on
# two cores: one trains GPT-2 (the test of the known answer) and GPTSAN (chapter 5); meanwhile the other does the rest.
FIRST = (
    KNOWN_ANSWER,
    *(f"{NOTEBOOKS}::test_outputs_are_as_stored[{start}" for start in ("01", "05", "03", "02")),
    f"{NOTEBOOKS}::test_japanese",
    "tests/corpus/",
    "tests/japanese/",
    "tests/subword/",
    *(f"{NOTEBOOKS}::test_outputs_are_as_stored[{start}" for start in ("04", "06", "07")),
)


@pytest.fixture(autouse=True)
def own_workspace(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    monkeypatch.setenv("COURSE_WORKSPACE", str(folder))
    monkeypatch.delenv("COURSE_PROFILE", raising=False)
    return folder


@pytest.fixture(scope="session")
def shared_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all notebooks and the demo, also where pytest-xdist gives each worker a folder of its own below the session's."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "shared-workspace"


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Seeds torch before each test: what a test draws does not depend on the tests before it.

    Without it, one of 14 runs of a memory test drew a routing of tokens to experts that needs more than the planner allows.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a file on one worker, since they share its fixtures; a notebook or rehearsal may go to any worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in (REHEARSAL, NOTEBOOKS) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what only `make rehearse` runs: to import it takes each worker of `make test` 6 s."""
    rehearsed = collection_path.relative_to(config.rootpath).as_posix().startswith(REHEARSE)
    return True if rehearsed and config.option.markexpr.startswith("not ") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tiers, and puts slow files first, so that no worker is left with one at the end."""
    for item in items:
        if item.nodeid.startswith(REHEARSE):
            item.add_marker(pytest.mark.rehearse)
        is_slow = item.nodeid.startswith(SLOW) and not item.nodeid.startswith(QUICK)
        if is_slow or item.get_closest_marker("rehearse"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _rank(item, (*FIRST, *SLOW)))


def _rank(item: pytest.Item, order: tuple[str, ...]) -> int:
    """The position of a test in an order of beginnings of node ids, or behind it."""
    return next((number for number, start in enumerate(order) if item.nodeid.startswith(start)), len(order))

"""What the plain functions make of the samples, for all tests of scale."""

from pathlib import Path

import pytest

from tests.scale.corpora import plain, settings


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


@pytest.fixture(scope="session")
def expected(folder: Path) -> dict[str, bytes]:
    return plain(folder / "results", settings(folder / "unused"))

"""The exported folder that the tests of the server share, and the engine that answers for it in the same process."""

from pathlib import Path

import pytest
from course_lib.serving import reader
from course_lib.serving.engine import Engine

from tests.serving import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("exported") / "tiny")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine.of(reader.load(folder))

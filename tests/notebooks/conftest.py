import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all notebooks, also where pytest-xdist gives each worker a folder of its own below the session's."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "shared-workspace"

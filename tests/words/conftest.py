from pathlib import Path

import pytest

from tests.words import pseudo


@pytest.fixture(scope="session")
def catalogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the catalogues of the pseudo-language."""
    folder: Path = tmp_path_factory.mktemp("locale")
    pseudo.write_catalogues(folder)
    return folder

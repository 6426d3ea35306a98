"""The bytes on each rank, which the figure shows, are those of the files."""

import re
from pathlib import Path

import pytest
from course_lib.serving import layout
from course_lib.serving.export import export
from course_lib.serving.tasks import NamedPrefix

from tests.serving import models
from tests.serving.models import FAMILIES, build, save


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_of_a_rank_are_those_of_its_files(tmp_path: Path, family: str, ranks: int):
    tasks = [NamedPrefix(*task) for task in models.prefixes().items()]
    report = export(save(build(family), tmp_path / "model"), tmp_path / "ft", ranks, "fp16", tasks)
    sizes = {path.name: path.stat().st_size for path in report.folder.glob("*.bin")}
    own = sum(size for name, size in sizes.items() if name.endswith(f".{ranks - 1}.bin"))
    shared = sum(size for name, size in sizes.items() if not re.search(r"\.\d+\.bin$", name))
    assert layout.rank_bytes(report.config) == (shared, own)

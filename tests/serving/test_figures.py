"""The figure of the weights on each rank, and the bytes that it shows."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from course_lib.serving import figures, layout
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


def test_only_possible_numbers_of_ranks_are_drawn(tmp_path: Path):
    small = export(save(build("sequential"), tmp_path / "model"), tmp_path / "ft").config
    large = replace(
        small, heads=22, head_size=128, inter_size=11264, layers=36, vocab_size=32000, rotary=128, dtype="fp16"
    )
    figure = figures.rank_memory({"small": small, "large": large})
    labels = [[label.get_text() for label in axis.get_xticklabels()] for axis in figure.axes]
    assert labels == [["1", "2", "4"], ["1", "2", "11", "22"]]
    assert [axis.get_ylabel() for axis in figure.axes] == ["weights on each rank [MB]", "weights on each rank [GB]"]
    shared, own = (container.datavalues for container in figure.axes[1].containers[:2])
    assert shared[0] == shared[3] and own[3] == pytest.approx(own[0] / 22)
    # 3 607 245 312 parameters in 2 bytes (configs/gpt-neox-3.6b.yaml)
    assert shared[0] + own[0] == pytest.approx(3607245312 * 2 / 1e9)

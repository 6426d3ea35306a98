"""Every engine of chapter 7's comparison writes the same text."""

from pathlib import Path

from course_lib.models import frozen_base
from course_lib.serving import ct2, latency

from tests.pretrain import models

PROMPTS = [[5, 6, 7, 8], [9], [10, 11, 260], [12, 13]]


def test_all_write_the_same_and_go_on_behind_the_end(tmp_path: Path) -> None:
    source = models.memorized(tmp_path)
    ct2.export(source, tmp_path / "ct2")
    writers = latency.hugging_face(frozen_base.load(source)), latency.ct2(tmp_path / "ct2")
    one, other = (write(PROMPTS, 30) for write in writers)
    assert one == other and [len(row) for row in one] == [30] * 4

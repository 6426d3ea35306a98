"""The estimates of `course scale plan`."""

import lzma
import re
from pathlib import Path

import pytest
from course_lib.cli import main
from course_lib.scale.config import ScaleConfig
from course_lib.scale.plan import CORES, estimate

STAGE = {"seconds": 1e-6, "memory": 10**8, "disk": 2.0}


def test_hours_are_divided_among_cores_but_not_among_more_than_there_are_shards() -> None:
    rates = {"webtext": {"split": STAGE, "clean": STAGE | {"memory": 3 * 10**8}}}
    settings = ScaleConfig(text_shard=36_000_000)
    # 10 shards of 36 MB: 360 s for each stage on one core.
    one, four, many = (estimate(settings, "webtext", 360_000_000, cores, rates=rates) for cores in (1, 4, 512))
    assert one.hours == pytest.approx(0.2) and one.serial == pytest.approx(0.1)
    assert four.hours == pytest.approx(0.1 + 0.1 / 4) and many.hours == pytest.approx(0.1 + 0.1 / 10)
    assert one.memory == 3 * 10**8 and one.disk == 1_440_000_000


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit):
        main(["scale", "plan", *arguments])
    return capsys.readouterr().out


def test_without_inputs_the_published_corpora_are_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    out = planned(capsys, "--set", "text_shard=1000000000")
    hours = [float(match) for match in re.findall(r"^cc100 +\d+ +([\d.]+) ", out, re.M)]
    assert len(hours) == len(CORES) and hours == sorted(hours, reverse=True)
    assert "jawiki" in out and "trained on all lines" in out


def test_the_inputs_and_the_tokenizer_of_the_file_are_estimated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "mine.txt.xz"
    text.write_bytes(lzma.compress("川まで散歩に出かけた。\n\n".encode() * 300_000))
    trained = tmp_path / "trained.yaml"
    trained.write_text(f"webtext: [{text}, 'https://example.org/x.txt.xz']\n")
    out = planned(capsys, "-c", str(trained))
    assert "mine.txt.xz" in out and "not counted" in out and "jawiki" not in out and "cc100" not in out
    ready = planned(capsys, "-c", str(trained), "--set", "tokenizer=/shared/tokenizer")
    assert "/shared/tokenizer" in ready and "all lines" not in ready
    hours = [estimate(ScaleConfig(tokenizer=name), "webtext", 10**9, 1).hours for name in ("", "/shared/tokenizer")]
    assert hours[0] > hours[1]

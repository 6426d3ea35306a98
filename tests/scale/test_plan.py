"""The estimates of `course scale plan`."""

import re
from pathlib import Path

import pytest
from course_lib.cli import main
from course_lib.scale.config import ScaleConfig
from course_lib.scale.plan import CORES, RATES, SERIAL, estimate
from course_lib.scale.text import STAGES
from course_lib.settings import profiles

STAGE = {"seconds": 1e-6, "fastest": 5e-7, "slowest": 2e-6, "memory": 10**8, "disk": 2.0}


def test_hours_are_divided_among_cores_but_not_among_more_than_there_are_shards() -> None:
    rates = {"webtext": {"split": STAGE, "clean": STAGE | {"memory": 3 * 10**8}}}
    settings = ScaleConfig(text_shard=36_000_000)
    # 10 shards of 36 MB: 360 s for each stage on one core.
    one, four, many = (estimate(settings, "webtext", 360_000_000, cores, rates) for cores in (1, 4, 512))
    assert one.hours == pytest.approx(0.2) and one.serial == pytest.approx(0.1)
    assert four.hours == pytest.approx(0.1 + 0.1 / 4) and many.hours == pytest.approx(0.1 + 0.1 / 10)
    assert one.lowest == pytest.approx(0.1) and one.highest == pytest.approx(0.4)
    assert one.memory == 3 * 10**8 and one.disk == 1_440_000_000


def test_the_measured_rates_cover_the_stages() -> None:
    rates = profiles.read_yaml(RATES)
    names = [stage.name for stage in STAGES]
    assert list(rates["webtext"]) == names and set(SERIAL) < set(names)
    assert set(rates["wikipedia"]) == {"split", "documents", "segment", "tokenizer", "tokens", "merged"}
    for kind in rates.values():
        for one in kind.values():
            assert 0 < one["fastest"] <= one["seconds"] <= one["slowest"] and one["memory"] > 10**7


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["scale", "plan", "--set", "text_shard=1000000000"])
    out = capsys.readouterr().out
    hours = [float(match) for match in re.findall(r"^CC-100 +\d+ +([\d.]+) ", out, re.M)]
    assert len(hours) == len(CORES) and hours == sorted(hours, reverse=True)

"""Costs of an interval, lines, and the log of a run that was taken up again."""

import orjson
import pytest
from course_lib.training import log


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("interval", [1, 5])
def test_costs_are_right_for_any_interval(interval):
    clock = Clock()
    meter = log.Meter(tokens_per_step=100, ranks=2, flops_per_token=1000.0, peak_flops=1e6, clock=clock)
    for step in range(1, 11):
        with meter.reading():
            clock.now += 0.25
        clock.now += 0.75
        if step % interval == 0:
            found = meter.read(step)
            assert found == pytest.approx({
                "reader_cost": 0.25, "batch_cost": 1.0, "steps_per_second": 1.0, "tokens_per_second": 100.0,
                "tokens_per_second_per_rank": 50.0, "flops_utilization": 0.05,
            })  # fmt: skip
        with meter.stopped():  # evaluating and saving are not training
            clock.now += 7


ENTRY = {"kind": "train", "epoch": 0.5, "loss": 6.5, "reader_cost": 0.001, "batch_cost": 1.6, "steps_per_second": 0.625,
         "tokens_per_second": 5120.0, "tokens_per_second_per_rank": 2560.0, "learning_rate": 5.5e-9, "grad_norm": 1.0, "memory": 2e9}  # fmt: skip


def test_a_run_that_continues_drops_the_steps_it_repeats_and_a_torn_line(tmp_path):
    for step in (1, 2, 3):
        log.append(tmp_path, ENTRY | {"step": step})
    with open(tmp_path / log.FILE, "ab") as file:
        file.write(b'{"kind": "train", "st')
    log.keep_until(tmp_path, 2)
    log.append(tmp_path, ENTRY | {"step": 3, "loss": 7.5})
    lines = (tmp_path / log.FILE).read_bytes().splitlines()
    assert [orjson.loads(line)["step"] for line in lines] == [1, 2, 3]
    assert log.read(tmp_path)[-1]["loss"] == 7.5

"""What a distributed run has done: stages, tasks, units, failures and the time left, read from its folder."""

import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from course_lib.errors import CourseError
from course_lib.language.columns import aligned
from course_lib.language.words import tr, tr_noop
from course_lib.scale.config import ScaleConfig
from course_lib.scale.stages import Stage
from course_lib.scale.store import Store
from course_lib.scale.text import STAGES
from course_lib.settings import config


@dataclass
class StageStatus:
    """The state of a stage."""

    name: str
    kind: str  # what its units are
    tasks: int
    tasks_done: int
    units: int | None  # None as long as earlier stages decide the number
    units_done: int
    running: int  # tasks
    seconds_left: float | None  # None if unknown
    failures: dict[int, str]  # reason by task


def status(url: str) -> list[StageStatus]:
    """Return the state of each stage. Raises CourseError if the folder holds no run."""
    store = Store(url)
    try:
        settings = config.build(ScaleConfig, store.json("scale.json") | {"output": url})
    except FileNotFoundError:
        raise CourseError(f"{url}: no run of `course scale run` in it (no scale.json)") from None
    return [_status(stage(settings), store) for stage in STAGES]


def _status(stage: Stage, store: Store) -> StageStatus:
    units = None
    with suppress(CourseError):
        units = len(stage.units())
    logs, failed = f"logs/{stage.name}", failures(store, stage.name)
    running = len(store.sizes(f"{logs}/progress")) - len(failed)
    seconds = [store.marker(stage.name, unit)["seconds"] for unit in store.done(stage.name)]
    tasks = 0
    with suppress(FileNotFoundError):
        tasks = int(store.json(f"{logs}/executor.json")["world_size"])
    left = 0.0 if units == len(seconds) else None
    if units and seconds:
        left = (units - len(seconds)) * sum(seconds) / len(seconds) / max(running, 1)
    done = len(store.sizes(f"{logs}/completions"))
    return StageStatus(stage.name, stage.kind, tasks, done, units, len(seconds), running, left, failed)


def failures(store: Store, stage: str) -> dict[int, str]:
    """Return for each task that failed or was killed the reason in English, as one line."""
    found = {}
    for name in store.sizes(f"logs/{stage}/progress"):
        record = store.json(name)
        if "error" in record:
            found[int(Path(name).stem)] = record["error"]
        elif record["host"] == socket.gethostname() and not psutil.pid_exists(record["pid"]):
            reason = f"its process {record['pid']} on {record['host']} was killed (out of memory?)"
            found[int(Path(name).stem)] = reason
    return found


def table(stages: list[StageStatus]) -> str:
    """Return the states as text in aligned columns, then a line for each failure, then the time left."""
    rows = [(tr("stage"), tr("tasks"), tr("units"), tr("running"), tr("left"))]
    for one in stages:
        units = f"{one.units_done}/{'?' if one.units is None else one.units} {tr(one.kind)}"
        tasks = f"{one.tasks_done}/{one.tasks}" if one.tasks else ""
        rows.append((one.name, tasks, units, str(one.running or ""), _duration(one.seconds_left)))
    lines = aligned(rows)
    for one in stages:
        message = tr_noop("{stage}: task {task}: {reason}")
        lines += [tr(message, stage=one.name, task=rank, reason=why) for rank, why in one.failures.items()]
    current = next((one for one in stages if one.seconds_left != 0), None)
    if current is None:
        return "\n".join([*lines, tr("all stages are done")])
    after = len(stages) - stages.index(current) - 1
    message = tr_noop("time left for {stage}: {time}; then {after} stages (`course scale plan`)")
    return "\n".join([*lines, tr(message, stage=current.name, time=_duration(current.seconds_left), after=after)])


def _duration(seconds: float | None) -> str:
    if not seconds:
        return "?" if seconds is None else tr("done")
    return tr("{number} min", number=f"{seconds / 60:.1f}")

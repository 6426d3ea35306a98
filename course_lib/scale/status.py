"""What a distributed run has done: stages, tasks, units, rates, failures and the time left, read from its folder."""

import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from course_lib.errors import CourseError
from course_lib.language.columns import aligned
from course_lib.language.words import mark, tr
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
    tasks: int  # 0 if it has not begun
    tasks_done: int
    units: int | None  # None as long as earlier stages decide the number
    units_done: int
    running: int  # tasks
    rate: float  # of one task [bytes of its input / s]
    seconds_left: float | None  # None if unknown
    failures: dict[int, str]  # reason by task


def status(url: str) -> list[StageStatus]:
    """Return the state of each stage. Raises CourseError if the folder holds no run."""
    store = Store(url)
    try:
        settings = config.build(ScaleConfig, orjson.loads(store.read("scale.json")) | {"output": url})
    except FileNotFoundError:
        raise CourseError(f"{url}: no run of `course scale run` in it (no scale.json)") from None
    return [_status(stage, settings, store) for stage in STAGES]


def _status(stage: type[Stage], settings: ScaleConfig, store: Store) -> StageStatus:
    name, logs, units = stage.name, f"logs/{stage.name}", None
    with suppress(CourseError):
        units = len(stage(settings).units())
    begun = f"{logs}/executor.json" in store.sizes(logs)
    failed = failures(store, name)
    running = len(_unfinished(store, name)) - len(failed)
    notes = [store.marker(name, unit) for unit in store.done(name)]
    seconds = sum(note["seconds"] for note in notes)
    left = None if units is None else units - len(notes)
    return StageStatus(
        name,
        stage.kind,
        tasks=int(orjson.loads(store.read(f"{logs}/executor.json"))["world_size"]) if begun else 0,
        tasks_done=len(store.sizes(f"{logs}/completions")),
        units=units,
        units_done=len(notes),
        running=running,
        rate=sum(note.get("bytes", 0) for note in notes) / seconds if seconds else 0.0,
        seconds_left=left * seconds / len(notes) / max(running, 1) if left and notes else None if left != 0 else 0.0,
        failures=failed,
    )


def failures(store: Store, stage: str) -> dict[int, str]:
    """Return for each task that failed or was killed the reason in English, as one line."""
    completed = {int(Path(name).stem) for name in store.sizes(f"logs/{stage}/completions")}
    found = {}
    for rank, record in _unfinished(store, stage).items():
        if rank in completed:
            continue
        if "error" in record:
            found[rank] = record["error"]
        elif record["host"] == socket.gethostname() and not psutil.pid_exists(record["pid"]):
            found[rank] = f"its process {record['pid']} on {record['host']} was killed (out of memory?)"
    return found


def _unfinished(store: Store, stage: str) -> dict[int, dict[str, Any]]:
    """Return the progress record of each task that has begun and not ended well."""
    names = store.sizes(f"logs/{stage}/progress")
    records = {int(Path(name).stem): orjson.loads(store.read(name)) for name in names}
    return {rank: record for rank, record in records.items() if record["before"] + record["done"] < record["of"]}


def table(stages: list[StageStatus]) -> str:
    """Return the states as text in aligned columns, then a line for each failure, then the time left."""
    rows = [(tr("stage"), tr("tasks"), tr("units"), tr("running"), tr("MB/s a task"), tr("left"))]
    for one in stages:
        units = f"{one.units_done}/{'?' if one.units is None else one.units} {tr(one.kind)}"
        rate = f"{one.rate / 1e6:.2f}" if one.rate else ""
        tasks = f"{one.tasks_done}/{one.tasks}" if one.tasks else ""
        rows.append((one.name, tasks, units, str(one.running or ""), rate, _duration(one.seconds_left)))
    lines = aligned(rows)
    for one in stages:
        message = mark("{stage}: task {task}: {reason}")
        lines += [tr(message, stage=one.name, task=rank, reason=why) for rank, why in one.failures.items()]
    current = next((one for one in stages if one.seconds_left != 0), None)
    if current is None:
        return "\n".join([*lines, tr("all stages are done")])
    after = len(stages) - stages.index(current) - 1
    message = mark("time left for {stage}: {time}; then {after} stages (`course scale plan`)")
    return "\n".join([*lines, tr(message, stage=current.name, time=_duration(current.seconds_left), after=after)])


def _duration(seconds: float | None) -> str:
    if not seconds:
        return "?" if seconds is None else tr("done")
    if seconds < 7200:
        return tr("{number} min", number=f"{seconds / 60:.1f}")
    return tr("{number} h", number=f"{seconds / 3600:.1f}")

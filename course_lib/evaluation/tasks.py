"""Tasks of lm-evaluation-harness: names that it knows, such as japanese_leaderboard, and the user's YAML files.

This module needs the extra `evaluate` (lm_eval).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import yaml
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Entry, TaskIndex

from course_lib.errors import CourseError, UsageError, one_line
from course_lib.evaluation.harness import CourseLM
from course_lib.evaluation.scoring import GeneratingModel

SUFFIXES = (".yaml", ".yml")
# In the error of datasets 4 and later for data that a Python file of its repository would load.
SCRIPT = "Dataset scripts are no longer supported"
# Japanese tasks of version 0.4.13 whose data are files without code.
WITHOUT_SCRIPT = ("belebele_jpn_Jpan", "global_mmlu_ja", "paws_ja", "mgsm_direct_ja")
# It warns of each default that a task file leaves to the harness.
logging.getLogger("lm_eval").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Score:
    """One metric of one task; `stderr` is the harness's standard error, if the metric has one."""

    task: str
    metric: str
    shots: int
    examples: int
    value: float
    stderr: float | None


@dataclass(frozen=True)
class Tasks:
    """Tasks whose data is there; `limit` takes the first examples of each."""

    names: tuple[str, ...]
    manager: TaskManager
    limit: int | None

    @classmethod
    def load(cls, chosen: Sequence[str], limit: int | None = None) -> Self:
        """Read the tasks and their data, so that a wrong name or missing data is reported before any model is measured.

        Raises:
            UsageError: if the harness does not know a name, or a file does not say which task it is.
            CourseError: if the data of a task cannot be loaded.
        """
        chosen = list(dict.fromkeys(chosen))
        files = {text: Path(text) for text in chosen if text.endswith(SUFFIXES)}
        names = tuple(_name(files[text]) if text in files else text for text in chosen)
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"--tasks: {twice[0]} is the name of several tasks; allowed: each name once")
        manager = TaskManager(include_defaults=len(files) < len(chosen))
        for path in files.values():
            manager.task_index[_name(path)] = _entry(path)
        for name in names:
            if name not in manager.task_index:
                near = ", ".join(get_close_matches(name, manager.all_tasks)) or "`lm_eval ls tasks` lists all"
                raise UsageError(f"--tasks: {name!r} is no task of lm-evaluation-harness; near it: {near}")
            try:
                manager.load([name])
            # Each kind of data has errors of its own: of the network, of a file, of a library that is not installed.
            except Exception as error:
                said = " ".join(str(error).split())[:200]
                if SCRIPT in said:
                    raise UsageError(_scripts(manager, name)) from error
                raise CourseError(
                    f"--tasks: the data of {name} cannot be loaded: {said}; data of the Hugging Face Hub is "
                    "kept after its first use with network; a task of your own reads a file"
                ) from error
        return cls(names, manager, limit)

    def scores(self, model: GeneratingModel, batch_size: int) -> list[Score]:
        """Return the metrics of all tasks and groups, in the harness's order."""
        try:
            found = simple_evaluate(
                CourseLM(model, batch_size),
                tasks=list(self.names),
                task_manager=self.manager,
                limit=self.limit,
                bootstrap_iters=1000,
                log_samples=False,
            )
        except CourseError:
            raise
        # A task's file and its data can be wrong in any way, and the harness checks neither.
        except Exception as problem:
            said = f"{type(problem).__name__}: {one_line(problem)}"
            raise CourseError(f"--tasks: {', '.join(self.names)} cannot be measured: {said}") from problem
        rows: list[Score] = []
        for task, metrics in found["results"].items():
            shots, examples = found["n-shot"].get(task) or 0, found["n-samples"].get(task, {}).get("effective", 0)
            for key, value in metrics.items():
                metric, _, way = key.partition(",")
                if way and isinstance(value, int | float) and not metric.endswith("_stderr"):
                    error: Any = metrics.get(f"{metric}_stderr,{way}")
                    name = metric if way == "none" else f"{metric} ({way})"
                    rows.append(Score(task, name, shots, examples, value, error if isinstance(error, float) else None))
        return rows


def _scripts(manager: TaskManager, name: str) -> str:
    """Return the message on a task or group of tasks whose data is loaded by a script."""
    members = manager.task_index[name].cfg or {}
    tasks = [each for each in members.get("task", ()) if isinstance(each, str)] if "group" in members else []
    refused, others = list[str](), list[str]()
    for task in tasks or [name]:
        try:
            manager.load([task])
        except Exception as error:
            (refused if SCRIPT in str(error) else others).append(task)
        else:
            others.append(task)
    reason = f"--tasks: {', '.join(refused or [name])}: the data is loaded by a script, which datasets no longer runs"
    allowed = " ".join(f"--tasks {task}" for task in others) or f"such as {', '.join(WITHOUT_SCRIPT)}"
    return f"{reason}; allowed: tasks without one: {allowed} (docs/evaluation.md)"


def _entry(path: Path) -> Entry:
    """Return a YAML file as a task. TaskManager's `include_path` takes the first file of a folder with its name."""
    try:
        entry = TaskIndex.entry_from_path(path)
    # What a file includes can be missing or wrong in any way.
    except Exception as error:
        raise CourseError(f"--tasks: {path}: {one_line(error)}") from error
    if entry is None:
        raise CourseError(f"--tasks: {path}: names no task")
    return entry


def _name(path: Path) -> str:
    """Return the name of the task in a YAML file. Tags such as !function are not followed."""
    try:
        nodes = yaml.compose(path.read_text(encoding="utf8"), yaml.SafeLoader)
        named = {key.value: value.value for key, value in nodes.value} if isinstance(nodes, yaml.MappingNode) else {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"--tasks: {path}: {' '.join(str(error).split())}") from error
    if not isinstance(name := named.get("task"), str):
        raise UsageError(f"--tasks: {path}: names no task; a line `task: NAME` is needed")
    return name

"""Running the stages with one of datatrove's executors, and resuming a run.

Units that are done are kept, unless the sizes of their files are not those in their markers.
"""

import io
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from typing import Any

import orjson
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.executor.slurm import SlurmPipelineExecutor
from loguru import logger

from course_lib.corpus.report import from_dict
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.progress import progress
from course_lib.parallel import default_workers, ordered_map
from course_lib.scale.config import FREE, Engine, ScaleConfig
from course_lib.scale.inputs import check_source
from course_lib.scale.stages import Stage
from course_lib.scale.status import failures
from course_lib.scale.store import Store
from course_lib.scale.text import STAGES, Merge
from course_lib.settings import config


class LocalExecutor(LocalPipelineExecutor):  # type: ignore[misc]
    """datatrove's local executor; its own pool waits forever for a killed task, and stops all when one fails."""

    def run(self) -> None:
        """Run the tasks that are not completed, in processes of their own if there are several workers."""
        self.save_executor_as_json()
        ranks = self.get_incomplete_ranks()
        with progress(len(ranks), "task", self.pipeline[0].name) as bar:
            for _ in ordered_map(self._attempt, ranks, min(self.workers, len(ranks))):
                bar.update()

    def _attempt(self, rank: int) -> None:
        """Run a task. If it fails, its log has the traceback, and it stays incomplete."""
        with redirect_stderr(io.StringIO()), suppress(Exception):
            self._run_for_rank(rank, local_rank=1)


def run(settings: ScaleConfig, engine: Engine = "local") -> str:
    """Run all stages, or those that are left, and return one line that says what came out.

    With Slurm, the jobs are submitted and the function returns at once. Raises CourseError if a task fails, with the
    stage, the task and the reason.
    """
    store = prepare(settings)
    stages = [stage(settings) for stage in STAGES]
    if engine == "slurm":
        return _submit(settings, stages)
    for number, stage in enumerate(stages, 1):
        mend(stage)
        tasks = executor(settings, stage, engine)
        if not tasks.get_incomplete_ranks():
            continue
        print(f"{number}/{len(stages)} {stage.name}: {len(stage.units())} × {tr(stage.kind)}", file=sys.stderr)
        try:
            tasks.run()
        except CourseError as error:
            raise CourseError(f"{stage.name}: {error}; run the same command again to resume") from None
        if left := tasks.get_incomplete_ranks():
            why = failures(store, stage.name).get(left[0], "killed, or its node went away")
            raise CourseError(
                f"{stage.name}: {len(left)} of {stage.tasks()} tasks failed; task {left[0]}: {why}; "
                "finished tasks are kept, run the same command again to resume"
            )
    return summary(store)


def _submit(settings: ScaleConfig, stages: Sequence[Stage]) -> str:
    """Submit a job array for each stage to Slurm, each of which waits for the one before."""
    last: Any = None
    for stage in stages:
        mend(stage)
        last = executor(settings, stage, "slurm", last)
    try:
        last.run()
    # No sbatch, or one that refuses the job and has printed why.
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise CourseError(f"slurm: the jobs could not be submitted: {one_line(error)}") from None
    message = tr_noop("jobs submitted, the last is {job}; course scale status {folder}")
    return tr(message, job=last.job_id, folder=settings.output)


def prepare(settings: ScaleConfig) -> Store:
    """Check the settings, record them in the run's folder, and return the store."""
    if not settings.output:
        raise UsageError("output: not set; give it in the YAML of -c, or -o")
    if not settings.wikipedia and not settings.webtext:
        raise UsageError("wikipedia, webtext: both empty; name at least one input")
    for kind in ("wikipedia", "webtext"):
        for source in getattr(settings, kind):
            check_source(source, kind)
    store = Store(settings.output)
    chosen = {key: value for key, value in config.to_dict(settings).items() if key not in FREE}
    if not store.sizes("scale.json"):
        if others := store.others():
            raise UsageError(
                f"output: {settings.output} holds other files: {others[0]}; allowed: a new folder, or a run"
            )
        store.write("scale.json", orjson.dumps(chosen, option=orjson.OPT_INDENT_2))
    old, new = config.flat(store.json("scale.json")), config.flat(chosen)
    for key in new | old:
        if old.get(key) != new.get(key):
            raise UsageError(
                f"{key}: {new.get(key)!r}, but {settings.output} was begun with {old.get(key)!r}; "
                "give the same settings or another output"
            )
    return store


def mend(stage: Stage) -> None:
    """Begin the tasks of a stage anew if a unit is not done, or has missing or truncated files."""
    store = stage.store
    for unit in store.broken(stage.name):
        message = tr_noop("{stage}: unit {unit} has missing or truncated files and is made again")
        print(tr(message, stage=stage.name, unit=unit), file=sys.stderr)
        store.remove(f"{stage.name}/done/{unit}.json")
    try:
        finished = set(stage.units()) <= set(store.done(stage.name))
    except CourseError:
        # An earlier stage has to be made again first.
        finished = False
    for folder in () if finished else ("completions", "progress"):
        for name in store.sizes(f"logs/{stage.name}/{folder}"):
            store.remove(name)


def summary(store: Store) -> str:
    """Return what a finished run wrote, as one line in the reader's language."""
    note = store.marker(Merge.name, "all")
    message = tr_noop("{documents:,} documents, {tokens:,} tokens → {prefix}.bin, .idx")
    counts = tr(message, prefix=store.url("merged/tokens"), **note)
    names = [f"{Merge.name}/{kind}.report.json" for kind in ("wikipedia", "webtext")]
    found = [from_dict(store.json(name)) for name in names if name in store.sizes(Merge.name)]
    return "; ".join([*(report.summary() for report in found), counts])


def executor(settings: ScaleConfig, stage: Stage, engine: Engine, previous: Any = None) -> Any:
    """Return datatrove's executor of a stage; a Slurm job array starts when that of `previous` has succeeded."""
    options: dict[str, Any] = {"pipeline": [stage], "tasks": stage.tasks(), "workers": settings.workers}
    options["logging_dir"] = stage.store.url(f"logs/{stage.name}")
    if engine == "slurm":
        chosen = settings.slurm
        return SlurmPipelineExecutor(
            **options,
            time=chosen.time,
            partition=chosen.partition,
            cpus_per_task=chosen.cpus_per_task,
            mem_per_cpu_gb=chosen.memory_gb,
            job_name=f"course-{stage.name}",
            qos=None,
            venv_path=chosen.environment,
            # Otherwise, the jobs after a failed one would stay in the queue forever.
            sbatch_args={"kill-on-invalid-dep": "yes", **chosen.sbatch},
            max_array_size=chosen.max_array_size,
            depends=previous,
            mail_type="NONE",
        )
    logger.remove()
    if engine == "local":
        return LocalExecutor(**options | {"workers": default_workers() if settings.workers == -1 else settings.workers})
    import ray

    if not ray.is_initialized():
        try:
            ray.init(settings.ray.address, log_to_driver=False)
        except ConnectionError as error:
            raise CourseError(f"ray.address: {settings.ray.address}: {one_line(error)}") from None
    memory = settings.ray.memory_gb
    return RayPipelineExecutor(**options, cpus_per_task=settings.ray.cpus_per_task, mem_per_cpu_gb=memory)

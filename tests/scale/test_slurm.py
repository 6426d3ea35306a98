"""The Slurm jobs that a run submits: recorded, and, where Slurm is installed, run on a real cluster of two nodes."""

import os
import sys
from pathlib import Path

import pytest
from course_lib.errors import CourseError
from course_lib.scale.run import run
from course_lib.scale.status import status
from course_lib.scale.text import STAGES
from course_lib.settings import config

from tests.bench import slurm_cluster
from tests.scale.corpora import plain, scaled, settings
from tests.waiting import until

# Appends its arguments and the script to a file, and answers as sbatch does.
SBATCH = """#!/bin/sh
echo "CALL $@" >> {calls}
for script; do :; done
cat "$script" >> {calls}
echo "Submitted batch job $(grep -c ^CALL {calls})"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "sbatch"
    program.write_text(SBATCH.format(calls=tmp_path / "calls"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "calls"


def test_an_array_for_each_stage_that_waits_for_the_one_before(tmp_path: Path, calls: Path) -> None:
    slurm = {"partition": "cpu", "time": "02:30:00", "memory_gb": 3, "max_array_size": 50, "environment": "/opt/bin/activate", "sbatch": {"account": "lm"}}  # fmt: skip
    said = run(settings(tmp_path / "run", tasks=40, workers=6, slurm=slurm), "slurm")
    jobs = [job.splitlines() for job in calls.read_text().split("CALL ")[1:]]
    # After each array, datatrove submits a job that merges its statistics.
    arrays = [(number, job) for number, job in enumerate(jobs, 1) if "RUN_OFFSET" in job[0]]
    assert len(arrays) == len(STAGES) and len(jobs) == 2 * len(arrays)
    assert said.startswith(f"jobs submitted, the last is {arrays[-1][0]}; ")
    for (earlier, _), (_, job), stage in zip(arrays, arrays[1:], STAGES[1:]):
        assert f"--dependency=afterok:{earlier}" in job[0]
        tasks = 1 if stage.__name__ in ("Tokenizer", "Merge") else 40
        expected = [f"--array=0-{tasks - 1}%6", "--partition=cpu", "--time=02:30:00", "--mem-per-cpu=3G", "--cpus-per-task=1", "--account=lm", "--kill-on-invalid-dep=yes", f"--job-name=course-{stage.name}", "--requeue"]  # fmt: skip
        assert {f"#SBATCH {option}" for option in expected} <= set(job)
        assert not any("--qos" in line for line in job)
        assert "source /opt/bin/activate" in job and any("launch_pickled_pipeline" in line for line in job)
    assert "#SBATCH --array=0-1%6" in arrays[0][1] and "--dependency" not in arrays[0][1][0]


def test_a_job_that_slurm_refuses_is_one_line(tmp_path: Path, calls: Path) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(CourseError, match="^slurm: the jobs could not be submitted: .*sbatch") as error:
        run(settings(tmp_path / "run"), "slurm")
    assert "\n" not in str(error.value)


@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing())
def test_two_real_nodes_make_the_same_bytes(tmp_path: Path) -> None:
    slurm = {"partition": "main", "time": "01:00:00", "memory_gb": 1}
    chosen = settings(tmp_path / "run", tasks=2, workers=2, slurm=slurm)
    (tmp_path / "run.yaml").write_text(config.to_yaml(chosen), encoding="utf8")
    course = [sys.executable, "-m", "course_lib.cli", "scale", "run", "-c", str(tmp_path / "run.yaml")]
    with slurm_cluster.cluster() as nodes:
        # Jobs inherit the environment of sbatch: the programs of this Python, and this checkout.
        nodes.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{nodes.environment['PATH']}"
        nodes.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        assert "jobs submitted" in nodes.run(*course, "--executor", "slurm").stdout
        until(lambda: not nodes.run("squeue", "--noheader").stdout)
        left = {stage.name: stage.failures for stage in status(chosen.output) if stage.units != stage.units_done}
        assert not left
    assert scaled(chosen.output) == plain(tmp_path / "plain", chosen)

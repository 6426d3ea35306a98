"""The Slurm script for a training command: what it asks of Slurm, and that bash and Slurm accept it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import slurm_cluster

COURSE = [sys.executable, "-m", "course_lib.cli"]


def printed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COURSE, *words, "--print-sbatch"], capture_output=True, text=True, cwd=cwd, check=False)


def options(script: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script, re.M))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("here")


SETS = (
    "launch.slurm.nodes=2",
    "launch.slurm.time=3-00:00:00",
    "launch.slurm.partition=gpu",
    "launch.slurm.memory=900G",
)


@pytest.fixture(scope="module")
def script(place: Path) -> str:
    words = [word for each in SETS for word in ("--set", each)]
    done = printed("pretrain", "-c", "gpt2-xl.yaml", *words, "-o", "a run", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_script_asks_for_what_the_recipe_needs(script: str, place: Path) -> None:
    assert options(script) == {
        "job-name": "pretrain-gpt2-xl",
        "partition": "gpu",
        "nodes": "2",
        "ntasks-per-node": "1",
        "gpus-per-node": "8",
        "cpus-per-task": "64",
        "mem": "900G",
        "time": "3-00:00:00",
        "signal": "USR1@300",
        "chdir": str(place),
        "output": "%x-%j.log",
        "open-mode": "append",
        "requeue": "",
    }


@pytest.mark.parametrize(("code", "requeued"), [(138, True), (0, False), (1, False)])
def test_the_script_resumes_the_command_and_requeues_only_a_stopped_run(
    script: str, tmp_path: Path, code: int, requeued: bool
) -> None:
    """Run the script by bash, with commands that record their arguments in place of Slurm's."""
    for name, result in (("srun", code), ("scontrol", 0)):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/bash\nprintf "%s\\n" "$@" > {tmp_path}/{name}.words\nexit {result}\n', encoding="utf8"
        )
        program.chmod(0o755)
    own = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "64", "SLURM_JOB_ID": "7"}
    done = subprocess.run(["bash", "-euc", "set +e\n" + script], env=os.environ | own, check=False)
    assert done.returncode == code
    words = (tmp_path / "srun.words").read_text().splitlines()
    assert words[:2] == ["--cpus-per-task=64", "--kill-on-bad-exit=0"]
    assert words[2 : 2 + len(COURSE) + 2] == [*COURSE, "pretrain", "-c"]
    assert Path(words[7]).is_file() and Path(words[7]).name == "gpt2-xl.yaml"
    assert words[8:] == [*(word for each in SETS for word in ("--set", each)), "-o", "a run", "--resume"]
    assert (tmp_path / "scontrol.words").exists() == requeued
    if requeued:
        assert (tmp_path / "scontrol.words").read_text().split() == ["requeue", "7"]


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("launch.ranks=null",), "launch.ranks: not set; --print-sbatch needs the number of ranks (GPUs) per node"),
        (("launch.hostfile=hosts",), "launch.hostfile: hosts is not allowed: Slurm names the nodes"),
        (("launch.slurm.time=a day",), "launch.slurm.time"),
    ],
)
def test_settings_that_make_no_script_are_refused(sets: tuple[str, ...], words: str, place: Path) -> None:
    done = printed("pretrain", "-c", "gpt2-xl.yaml", *(word for each in sets for word in ("--set", each)), cwd=place)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and words in done.stderr


@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing() or "Slurm is here")
def test_slurm_accepts_the_script(place: Path) -> None:
    """The cluster has no GPUs and two nodes of two cores."""
    sets = ("launch.device=cpu", "launch.ranks=1", "launch.slurm.nodes=2", "launch.slurm.cpus_per_rank=2")
    words = [word for each in sets for word in ("--set", each)]
    (place / "job.sh").write_text(
        printed("pretrain", "-c", "gpt2-tiny.yaml", *words, cwd=place).stdout, encoding="utf8"
    )
    with slurm_cluster.cluster(cpus=2) as slurm:
        said = slurm.run("sbatch", "--test-only", str(place / "job.sh")).stderr
        assert re.search(r"Job \d+ to start at .* using 4 processors on nodes node\[1-2\] in partition main", said)
        refused = slurm.run("sbatch", "--test-only", "--nodes=3", str(place / "job.sh"), check=False)
        assert refused.returncode and "allocation failure" in refused.stderr

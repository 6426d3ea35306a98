"""Training under Slurm: the script for a command, and how a run finds its nodes.

Training itself takes minutes there: `python -m tests.bench.several_nodes slurm`.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from course_lib.training.nodes import Nodes

from tests.bench import slurm_cluster
from tests.waiting import until

COURSE = [sys.executable, "-m", "course_lib.cli"]


def printed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COURSE, *words, "--print-sbatch"], capture_output=True, text=True, cwd=cwd, check=False)


def options(script: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script, re.M))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("here")


SETS = ("launch.slurm.nodes=2", "launch.slurm.time=3-00:00:00", "launch.slurm.memory=900G")


@pytest.fixture(scope="module")
def script(place: Path) -> str:
    words = [word for each in SETS for word in ("--set", each)]
    done = printed("pretrain", "-c", "gpt2-xl.yaml", *words, "-o", "a run", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_script_asks_for_what_the_recipe_needs(script: str, place: Path) -> None:
    asked = options(script)
    assert (asked["nodes"], asked["gpus-per-node"], asked["mem"], asked["time"]) == ("2", "8", "900G", "3-00:00:00")
    assert (asked["signal"], asked["chdir"], asked["requeue"]) == ("USR1@300", str(place), "")


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


@pytest.fixture(scope="module")
def slurm() -> Iterator[slurm_cluster.Cluster]:
    if reason := slurm_cluster.missing():
        pytest.skip(reason)
    with slurm_cluster.cluster(cpus=2) as running:
        yield running


FIND = """
from course_lib.settings import config
from course_lib.pretrain.config import PretrainConfig
from course_lib.training import nodes
print(nodes.find(config.build(PretrainConfig, {"launch": {"device": "cpu", "ranks": 3}})))
"""


def test_a_run_finds_its_nodes_only_under_srun(place: Path, slurm: slurm_cluster.Cluster) -> None:
    """In a step of two tasks, one per node; in the job's script, which is on the first node; and in a step of one node."""
    script = place / "find.sh"
    find = shlex.join([sys.executable, "-c", FIND])
    steps = (
        find,
        f"srun --ntasks-per-node=1 --output=step%t.out {find}",
        f"srun --nodes=1 --ntasks=1 --output=one.out {find}",
    )
    script.write_text("#!/bin/bash\n" + "\n".join(steps) + "\n", encoding="utf8")
    options = ("--nodes=2", "--ntasks-per-node=1", "--output=job.out", "--error=job.err", f"--chdir={place}")
    job = slurm.run("sbatch", "--parsable", *options, str(script), cwd=place).stdout.strip()
    until(lambda: slurm.state(job) not in ("PENDING", "RUNNING", "COMPLETING"))
    assert slurm.state(job) == "COMPLETED"

    def found(name: str) -> Nodes:
        said = (place / name).read_text(encoding="utf8").strip()
        nodes: Nodes = eval(said, {"Nodes": Nodes})
        return nodes

    first, second = found("step0.out"), found("step1.out")
    assert (first.rank, second.rank) == (0, 1)
    assert first.slots == second.slots == {"node1": 3, "node2": 3}
    # The step's port comes from the ids of the job and the step.
    assert first.address == second.address == ("127.0.0.1", first.address[1]) and 15000 <= first.address[1] < 25000
    assert found("job.out") == found("one.out") == Nodes({"localhost": 3})

"""The script that --print-sbatch writes. Training under Slurm takes minutes: `python -m tests.bench.several_nodes slurm`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from course_lib.errors import UsageError
from course_lib.training import sbatch

COURSE = [sys.executable, "-m", "course_lib.cli"]


def printed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COURSE, *words, "--print-sbatch"], capture_output=True, text=True, cwd=cwd, check=False)


def options(script: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script, re.M))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("here")


SETS = ("launch.slurm.nodes=2", "launch.slurm.time=3-00:00:00", "launch.slurm.memory=900G")


@pytest.fixture(scope="module")
def script(folder: Path) -> str:
    words = [word for each in SETS for word in ("--set", each)]
    done = printed("pretrain", "-c", "gpt2-xl.yaml", *words, "-o", "a run", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_script_asks_for_what_the_recipe_needs(script: str, folder: Path) -> None:
    asked = options(script)
    assert (asked["nodes"], asked["gpus-per-node"], asked["mem"], asked["time"]) == ("2", "8", "900G", "3-00:00:00")
    assert (asked["ntasks-per-node"], asked["cpus-per-task"]) == ("8", "8")
    assert (asked["signal"], asked["chdir"], asked["requeue"]) == ("B:USR1@300", str(folder), "")


@pytest.mark.parametrize(
    "name", ["plain", "two words", "日本語", 'a "b"', "it's # no comment", "back\\slash", "tab\there"]
)
def test_the_folder_is_quoted_as_sbatch_reads_it(name: str) -> None:
    line = f"#SBATCH --chdir={sbatch._quoted('chdir', name)}"
    # As _get_argument in slurm's src/sbatch/opt.c reads it; of a plain name nothing is quoted.
    assert argument(line.removeprefix("#SBATCH ")) == f"--chdir={name}"
    assert ('"' in line) == (name not in ("plain", "日本語"))


def argument(text: str) -> str:
    read, quote, escaped = "", "", False
    for character in text:
        if escaped or not (character in "\\\"'#" or character.isspace()):
            read, escaped = read + character, False
        elif character == "\\":
            escaped = True
        elif quote:
            read, quote = (read, "") if character == quote else (read + character, quote)
        elif character in "\"'":
            quote = character
        else:
            break
    return read


def test_a_folder_with_a_line_break_is_refused() -> None:
    with pytest.raises(UsageError, match="--chdir: .* has a line break"):
        sbatch._quoted("chdir", "two\nlines")


@pytest.mark.parametrize(("code", "requeued"), [(138, True), (0, False), (1, False)])
def test_the_script_resumes_the_command_and_requeues_only_a_stopped_run(
    script: str, tmp_path: Path, code: int, requeued: bool
) -> None:
    """Run the script by bash, with programs that record their arguments instead of the command and of Slurm."""
    command = shlex.join(COURSE)
    assert command in script
    course = tmp_path / "course"
    # It is stopped as Slurm stops the script; the code of a stopped run is that of `course`.
    caught = "(( 0x$(awk '/SigCgt/ {print $2}' /proc/$PPID/status) & 0x200 ))"  # the script has its trap
    stopped = (
        f"trap 'exit {code}' USR1; until {caught}; do sleep 0.1; done; kill -USR1 $PPID; while :; do sleep 0.1; done"
    )
    programs = {course: stopped if requeued else f"exit {code}", tmp_path / "scontrol": ""}
    for program, end in programs.items():
        program.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {program}.words\n{end}\n', encoding="utf8")
        program.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "SLURM_CPUS_PER_TASK": "64",
        "SLURM_JOB_ID": "7",
    }
    done = subprocess.run(["bash", "-c", script.replace(command, str(course))], env=os.environ | variables, check=False)
    assert done.returncode == code
    words = (tmp_path / "course.words").read_text().splitlines()
    assert words[:2] == ["pretrain", "-c"] and Path(words[2]).is_file() and Path(words[2]).name == "gpt2-xl.yaml"
    assert words[3:] == [*(word for each in SETS for word in ("--set", each)), "-o", "a run", "--resume"]
    assert (tmp_path / "scontrol.words").exists() == requeued
    if requeued:
        assert (tmp_path / "scontrol.words").read_text().split() == ["requeue", "7"]

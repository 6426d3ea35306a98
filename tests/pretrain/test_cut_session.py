"""A Colab session that ends without warning: the machine and its workspace are lost, the mounted drive is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from course_lib.pretrain import products
from course_lib.training import checkpoint, log
from course_lib.training.run_product import runs_folder
from course_lib.workspace import products as workspace

from tests.waiting import until

# So many that the run cannot end between its first checkpoint and the kill, however busy the machine.
STEPS = 200
PROFILE = """\
extends: tiny
pretrain: {{recipe: {{config: run.yaml}}}}
training: {{runs: {{folder: {drive}/course}}}}
"""
RUN = f"""\
extends: gpt2-tiny
model: {{hidden_size: 32, num_layers: 2}}
data: {{seq_length: 32}}
batch: {{micro_size: 2}}
engine: {{max_steps: {STEPS}, logging_freq: 1, save_steps: 4, eval_freq: 0, test_iters: 0}}
launch: {{ranks: 1}}
"""


def test_the_run_goes_on_from_the_drive_in_a_new_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drive").mkdir()
    (tmp_path / "mine.yaml").write_text(PROFILE.format(drive=tmp_path / "drive"))
    (tmp_path / "run.yaml").write_text(RUN)
    monkeypatch.setenv("COURSE_PROFILE", str(tmp_path / "mine.yaml"))
    runs = runs_folder(products.RUNS)
    session = subprocess.Popen(
        [sys.executable, "-c", "from course_lib.pretrain.products import GPT2; GPT2.path()"], stdout=subprocess.DEVNULL
    )
    until(lambda: any(checkpoint.whole_checkpoints(run) for run in runs.glob("*")), session)
    for member in [*psutil.Process(session.pid).children(recursive=True), psutil.Process(session.pid)]:
        member.kill()
    session.wait()
    (run,) = runs.iterdir()
    before = log.read(run)
    start = checkpoint.step_of(checkpoint.whole_checkpoints(run)[0])
    assert runs.is_relative_to(tmp_path / "drive") and 4 <= start < STEPS
    shutil.rmtree(workspace.root())

    folder = products.GPT2.path()
    assert [each.name for each in runs.iterdir()] == [run.name]
    after = log.read(folder)
    assert after[: start - 1] == before[: start - 1], "steps before the checkpoint were not repeated"
    assert [entry["step"] for entry in after] == list(range(1, STEPS + 1))
    assert (folder / "model/model.safetensors").is_file()

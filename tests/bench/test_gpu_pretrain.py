"""The GPU benchmark takes its whole path on CPU, so that it is ready when a GPU is there."""

import subprocess
import sys


def test_the_script_measures_a_run(tmp_path):
    table = tmp_path / "table.md"
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.gpu_pretrain", "--cpu", "-o", str(table)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = [cell.strip() for cell in table.read_text().splitlines()[-1].strip("|").split("|")]
    assert cells[:5] == ["gpt2-tiny", "0.0", "False", "8", "none"]
    assert all(float(cell.replace(",", "").rstrip("%")) > 0 for cell in (*cells[5:8], cells[9]))

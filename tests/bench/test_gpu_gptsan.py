"""The GPU benchmark of GPTSAN takes its whole path on CPU, so that it is ready when a GPU is there."""

import subprocess
import sys


def test_the_script_measures_generation_and_a_run(tmp_path):
    table = tmp_path / "table.md"
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.gpu_gptsan", "--cpu", "-o", str(table)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = table.read_text().splitlines()
    generation = [cells(line) for line in lines if line.startswith(("| 1 |", "| 4 |"))]
    assert [row[:2] for row in generation] == [["1", "16"], ["4", "16"]]
    assert all(float(cell.replace(",", "")) > 0 for row in generation for cell in row[2:4])
    training = cells(lines[-1])
    assert training[:3] == ["extra stage", "8", "none"]
    assert all(float(cell.replace(",", "")) > 0 for cell in (*training[3:5], training[6]))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]

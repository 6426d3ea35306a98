"""The GPU benchmark and the recipe take their whole paths on CPU with tiny shapes, ready for a card."""

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from course_lib import paths
from course_lib.errors import CourseError

from tests.bench import (
    gpu_all,
    gpu_attention,
    gpu_gptsan,
    gpu_prefix,
    gpu_pretrain,
    gpu_recipe,
    gpu_serving,
    gpu_tables,
)
from tests.bench.gpu_common import Bench, Part


def test_all_parts_together_take_less_than_25_minutes():
    parts = [*gpu_attention.PARTS, *gpu_pretrain.PARTS, *gpu_gptsan.PARTS, *gpu_prefix.PARTS, *gpu_serving.PARTS]
    assert len(gpu_all.PARTS) == len(parts)
    assert sum(part.seconds for part in parts) <= gpu_all.TOTAL


def test_a_part_is_measured_once_and_the_others_are_left_for_another_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "results"
    assert gpu_all.main(["-o", str(folder), "--cpu", "--only", "kernels"]) == 0, (folder / "kernels.log").read_text()
    result = folder / "kernels.json"
    rows = json.loads(result.read_text())["rows"]
    models = ["GPT-2 124M", "GPT-2 XL", "prefix of GPT-NeoX 3.6B", "GPTSAN"]
    assert [row["model"] for row in rows] == [model for model in models for _ in ("bf16", "fp16")]
    assert all("flash_attention_for_cpu" in row["operators"][0] and row["seconds"] > 0 for row in rows)
    before = result.stat().st_mtime_ns
    capsys.readouterr()
    assert gpu_all.main(["-o", str(folder), "--cpu", "--until", "1"]) == gpu_all.LEFT
    told = capsys.readouterr().out
    assert "gpt2-xl: no time left" in told and "kernels:" not in told
    assert result.stat().st_mtime_ns == before
    assert "flash_attention_for_cpu" in (folder / "tables.md").read_text()


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda _: time.sleep(30), "took longer than 1 s"),
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda _: fail("no batch fits"), "no batch fits"),
        (lambda _: {"never": object()}, None),
    ],
)
def test_a_part_that_fails_leaves_its_reason_and_no_result(
    tmp_path: Path, run: Callable[[Bench], Any], reason: str | None
):
    part = Part("bad", 1, run)
    if reason is None:  # killed while it writes, say
        with pytest.raises(TypeError):
            gpu_all.measure(part, tmp_path, True, part.seconds)
        assert list(tmp_path.iterdir()) == []
        return
    assert gpu_all.measure(part, tmp_path, True, part.seconds) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.failed"]
    assert (tmp_path / "bad.failed").read_text().strip() == reason


def fail(why: str) -> None:
    raise CourseError(why)


@pytest.mark.parametrize(
    ("part", "micro"),
    [(gpu_pretrain.PARTS[0], 8), (gpu_gptsan.PARTS[0], 8), (gpu_prefix.PARTS[0], 2)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_training_is_measured_through_the_launcher(tmp_path: Path, part: Part, micro: int):
    found = part.run(Bench(tmp_path, True))
    assert (found["micro_batch"], found["recompute"], found["dtype"], found["compile"]) == (
        micro,
        "none",
        "bf16",
        False,
    )
    assert all(found[key] > 0 for key in ("tokens_per_second", "share", "matrix_rate", "allocated", "planned"))
    # warm-up of two entries and one that counts
    assert len(found["losses"]) == 3
    assert not found["out_of_memory_before"]
    json.dumps(found)


def test_generation_and_the_reader_are_measured(tmp_path: Path):
    for name, run in (("gptsan", gpu_gptsan.PARTS[1].run), ("reader", gpu_serving.PARTS[0].run)):
        (tmp_path / name).mkdir()
        found = run(Bench(tmp_path / name, True))
        assert all(row["tokens_per_second"] > 0 for row in found["rows"])
    # in fp32 on CPU, the engine writes what `generate` writes
    assert found["rows"][0]["equal"] == 1


def test_triton_is_measured_or_its_absence_noted(tmp_path: Path):
    found = gpu_serving.PARTS[1].run(Bench(tmp_path, True))
    assert found["kind"] == ("serving" if find_spec("pytriton") else "note")


def training(what: str, speed: float, share: float, held: float = 50e9, compiled: bool = False) -> dict[str, Any]:
    own = {"kind": "training", "part": f"{what}-{compiled}", "what": what, "tokens_per_second": speed, "share": share}
    same = {"device": "card", "torch": "2", "seconds": 60.0, "dtype": "fp16", "micro_batch": 8, "recompute": "none"}
    same |= {"losses": [10.8, 9.0], "nccl": "2.28", "matrix_rate": 8e14, "out_of_memory_before": ["micro-16-none"]}
    rest = {"compile": compiled, "held": held, "planned": 52e9, "allocated": 45e9, "loss_scale": 65536.0}
    return own | same | rest | {"skipped_steps": 9}


def test_tables_say_which_aims_are_met(tmp_path: Path):
    runs = [training("GPT-2 124M", 410_000, 0.4), training("GPT-2 XL", 44_000, 0.51, 47e9)]
    runs.append(training("GPT-2 124M", 300_000, 0.3, 20e9, True))
    for number, run in enumerate(runs[:1]):
        (tmp_path / f"{number}.json").write_text(json.dumps(run))
    first = gpu_tables.tables(tmp_path)
    assert "| 410,000 | met |" in first and first.count("not measured") == 2 and "4.0% at worst | met |" in first
    for number, run in enumerate(runs):
        (tmp_path / f"{number}.json").write_text(json.dumps(run))
    (tmp_path / "triton.failed").write_text("no server")
    text = gpu_tables.tables(tmp_path)
    # the fastest of a model's runs counts; a compiled run is not the planner's
    assert "| 410,000 | met |" in text and "| 44,000 | missed |" in text and "| 51.0% | met |" in text
    assert "| 10.6% at worst | missed |" in text
    assert "9 steps skipped, loss scale 65536 at the end" in text and "triton: no server" in text
    assert "ran out of memory, although the planner let them: micro-16-none" in text


def test_the_recipe_goes_on_where_it_ended_and_keeps_figures_only(tmp_path: Path):
    common = ["-o", str(tmp_path), "--minutes", "1", "--speed", "100"]
    text = ["--text", str(paths.data("chat.jsonl")), "--vocabulary", "2000"]
    assert gpu_recipe.main([*common, *text, "--stop", "prepared"]) == 0
    tokens = tmp_path / "prepared" / "tokens.bin"
    before = tokens.stat().st_mtime_ns
    assert gpu_recipe.main([*common, "--until", "30"]) == gpu_recipe.LEFT  # no time for a slice
    assert gpu_recipe.main(common) == 0
    assert tokens.stat().st_mtime_ns == before
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert names == {"curve.png", "log.jsonl", "recipe.json", "manifest.json"}
    found = json.loads((tmp_path / "results" / "recipe.json").read_text(encoding="utf8"))
    # 60 s · 100 tokens/s, in steps of 8 sequences of 128 tokens
    assert found["steps"] == 5
    model, trigram = found["scores"]
    assert model["bits"]["bits_per_character"] > 0 and trigram["minimal_pairs"]["all"]["accuracy"] > 0.5
    assert all(text.startswith("日本の") for text in found["samples"]["日本の"])
    assert str(tmp_path) not in json.dumps(found)

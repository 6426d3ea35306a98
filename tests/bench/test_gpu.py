"""The GPU benchmarks take their whole paths on CPU with tiny shapes; no card has run them yet."""

import json
from pathlib import Path

import pytest
from course_lib import paths
from course_lib.files import MARK

from tests.bench import gpu_all, gpu_gptsan, gpu_known, gpu_prefix, gpu_pretrain, gpu_recipe, gpu_serving, gpu_tables
from tests.bench.gpu_common import Bench, Part


@pytest.mark.parametrize(
    "part", [gpu_pretrain.PARTS[0], gpu_gptsan.PARTS[0], gpu_prefix.PARTS[0]], ids=lambda part: part.name
)
def test_a_training_is_measured(tmp_path: Path, part: Part):
    found = part.run(Bench(tmp_path, True))
    assert all(found[key] > 0 for key in ("tokens_per_second", "share", "matrix_rate", "allocated", "planned"))
    json.dumps(found)


def test_all_parts_fit_into_the_time_that_the_page_names():
    assert sum(part.seconds for part in gpu_all.PARTS.values()) <= gpu_all.TOTAL == 30 * 60
    page = Path(gpu_all.__file__).with_name("GPU.md").read_text(encoding="utf8")
    assert [name for name in gpu_all.PARTS if f"`{name}`" not in page and not name.endswith("-compile")] == []
    assert "has not run" in page


@pytest.mark.parametrize("part", gpu_known.PARTS, ids=lambda part: part.name)
def test_what_has_a_known_answer_is_trained_and_judged(tmp_path: Path, part: Part):
    found = part.run(Bench(tmp_path, True))
    assert str(tmp_path) not in json.dumps(found)
    # A model of a few steps knows little more than the number of its entries.
    assert part.name.startswith("recipe") or found["source"] < found["trigram"] < found["model"] < 10


def test_generation_and_the_reader_are_measured(tmp_path: Path):
    for name, run in (("gptsan", gpu_gptsan.PARTS[1].run), ("reader", gpu_serving.PARTS[0].run)):
        (tmp_path / name).mkdir()
        assert all(row["tokens_per_second"] > 0 for row in run(Bench(tmp_path / name, True))["rows"])


def test_a_part_is_measured_once_and_shown_in_the_tables(tmp_path: Path):
    folder = tmp_path / "results"
    assert gpu_all.main(["-o", str(folder), "--cpu", "--only", "kernels"]) == 0, (folder / "kernels.log").read_text()
    before = (folder / "kernels.json").stat().st_mtime_ns
    assert gpu_all.main(["-o", str(folder), "--cpu", "--until", "1"]) == gpu_all.LEFT
    assert (folder / "kernels.json").stat().st_mtime_ns == before
    assert "flash_attention_for_cpu" in gpu_tables.tables(folder)


def test_the_recipe_goes_on_where_it_ended_and_keeps_figures_only(tmp_path: Path):
    common = ["-o", str(tmp_path), "--minutes", "1", "--speed", "100", "--set", "model.vocab_size=2000"]
    text = ["--text", str(paths.data("tasks/smile.jsonl")), "--vocabulary", "2000"]
    assert gpu_recipe.main([*common, *text, "--stop", "prepared"]) == 0
    assert gpu_recipe.main([*common, "--until", "30"]) == gpu_recipe.LEFT  # no time for a slice
    assert gpu_recipe.main(common) == 0
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert names == {"curve.png", "log.jsonl", "recipe.json", MARK}
    assert str(tmp_path) not in (tmp_path / "results" / "recipe.json").read_text(encoding="utf8")

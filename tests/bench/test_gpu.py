"""The GPU benchmarks take their whole paths on CPU with tiny shapes; README.md has what ran on a card."""

import json
from pathlib import Path

import pytest
from course_lib import paths
from course_lib.errors import CourseError
from course_lib.files import FILE_LIST

from tests.bench import (
    gpu_all,
    gpu_aozora,
    gpu_gptsan,
    gpu_known,
    gpu_prefix,
    gpu_pretrain,
    gpu_recipe,
    gpu_serving,
    gpu_tables,
)
from tests.bench.gpu_common import Bench, Part


@pytest.mark.parametrize(
    "part", [gpu_pretrain.PARTS[0], gpu_gptsan.PARTS[0], gpu_prefix.PARTS[0]], ids=lambda part: part.name
)
def test_a_training_is_measured(tmp_path: Path, part: Part):
    found = part.run(Bench(tmp_path, True))
    assert all(found[key] > 0 for key in ("tokens_per_second", "share", "matrix_rate", "allocated", "planned"))
    json.dumps(found)


def test_a_set_fits_into_the_time_for_which_a_card_is_lent():
    used = {1: gpu_all.TRAINING, 2: 0}
    for number, names in gpu_all.SETS.items():
        limits = sum(gpu_all.PARTS[name].seconds for name in names)
        assert used[number] + limits + gpu_all.OTHER <= gpu_all.LENT == 15 * 60, number
    page = Path(gpu_all.__file__).with_name("GPU.md").read_text(encoding="utf8")
    assert [name for name in gpu_all.PARTS if f"`{name}`" not in page and not name.endswith("-compile")] == []


def test_the_run_on_aozora_goes_to_a_card_in_shards_and_comes_back_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Packed for two calls, unpacked, trained for a second with a small model, and joined again."""
    texts = [f"w{number % 290 + 3} w7 " * 200 for number in range(40)]
    source, packed, tokens, parts = (tmp_path / name for name in ("train.jsonl", "packed", "tokens", "parts"))
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    gpu_pretrain.stand_in(tmp_path / "tokenizer")
    monkeypatch.setattr(gpu_aozora, "SHARD", 10_000)
    monkeypatch.setattr(gpu_aozora, "PART", 100_000)
    room = max(len(gpu_aozora.packed_shard(each)[0]) for each in gpu_aozora.shards(texts))
    with pytest.raises(CourseError, match="--room: holds .* characters; give room for another call"):
        gpu_aozora.pack(source, packed, [room, room])
    gpu_aozora.main(["pack", str(source), "-o", str(packed), "--room", str(room / 1e6), "1"])
    assert [path.name for path in sorted(packed.iterdir()) if path.is_dir()] == ["1", "2"]
    with_tokenizer = ["--tokenizer", str(tmp_path / "tokenizer"), "-o"]
    for call in "12":
        gpu_aozora.main(["unpack", str(packed / call), *with_tokenizer, str(tokens)])
    small = (
        "model.hidden_size=32", "model.num_layers=1", "model.num_attention_heads=2", "model.vocab_size=300",
        "data.seq_length=64", "batch.global_size=4", "batch.micro_size=4", "engine.max_seconds=1",
        "engine.logging_freq=1", "engine.compile=false", "launch.device=cpu", "precision.dtype=fp32",
    )  # fmt: skip
    changes = [word for change in small for word in ("--set", change)]
    train = ["train", str(tokens), *with_tokenizer, str(tmp_path / "run"), "--parts", str(parts), *changes]
    gpu_aozora.main(train)
    assert len(list(parts.iterdir())) > 3 and all(path.stat().st_size < 300_000 for path in parts.iterdir())
    result = json.loads((parts / "result.json").read_text())
    assert result["tokens"] == result["steps"] * 4 * 64 and result["share"] > 0
    assert str(tmp_path) not in json.dumps(result)
    gpu_aozora.main(["join", str(parts), "-o", str(tmp_path / "model")])
    trained = {path.name: path.read_bytes() for path in (tmp_path / "run/model").iterdir()}
    joined = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    del trained[FILE_LIST]
    assert trained.items() <= joined.items()
    (parts / "model.safetensors.00").unlink()
    with pytest.raises(CourseError, match="the parts of model.safetensors are not those"):
        gpu_aozora.join(parts, tmp_path / "again")


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
    assert names == {"curve.png", "log.jsonl", "recipe.json", FILE_LIST}
    assert str(tmp_path) not in (tmp_path / "results" / "recipe.json").read_text(encoding="utf8")

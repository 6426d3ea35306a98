"""From an exported folder back to the model: the same logits, with every prefix, for any number of ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError
from course_lib.generation.prefix_cache import Shape, past, positions
from course_lib.serving import layout, reader, weight_map
from course_lib.serving.export import export
from course_lib.serving.ft_source import Corrections
from course_lib.serving.layout import FtConfig, PrefixTask
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving import models
from tests.serving.models import FAMILIES, HEADS, HIDDEN, LAYERS, as_task, build, save

IDS = torch.tensor([[5, 6, 7, 8, 9], [30, 31, 3, 0, 0], [11, 12, 13, 14, 0], [1, 2, 3, 4, 5]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
TASKS = [*models.prefixes().items(), ("none", None)]


def logits(model, prefixes) -> torch.Tensor:
    """Of a batch in which every row has its own prefix, or none; only what a text sees."""
    rows = [prefixes[task] for task in (0, 1, 2, 0)]
    cache, front = past(rows, Shape(LAYERS, HEADS, HIDDEN // HEADS), model.dtype, "cpu")
    lengths = torch.tensor([0 if row is None else len(row) for row in rows])
    with torch.inference_mode():
        found = model(
            IDS,
            past_key_values=cache,
            attention_mask=torch.cat([front, MASK], 1),
            position_ids=positions(lengths, MASK),
        )
    return found.logits[MASK.bool()].float()


@pytest.mark.parametrize(("dtype", "ranks"), [("fp32", 4), ("fp16", 2), ("bf16", 4)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_logits_of_the_model_with_every_prefix(tmp_path: Path, family: str, dtype, ranks: int):
    model = build(family)
    export(save(model, tmp_path / "model"), tmp_path / "ft", ranks, dtype, [as_task(*task) for task in TASKS])
    (tmp_path / "model").rename(tmp_path / "away")
    found = reader.load(tmp_path / "ft")
    assert found.model.dtype == TORCH[dtype] and found.config.ranks == ranks
    values = [values for _, values in TASKS]
    with_prefix = logits(model, values)
    if dtype == "fp32":
        assert torch.allclose(logits(found.model, found.prefixes), with_prefix, rtol=0, atol=1e-5)
        again = reader.load(tmp_path / "ft" / f"{ranks}-gpu", torch.bfloat16)
        assert {again.model.dtype, *(rows.dtype for rows in again.prefixes if rows is not None)} == {torch.bfloat16}
    else:  # the same rounding of weights and prefixes, then arithmetic in fp32
        rounded = [None if rows is None else rows.to(TORCH[dtype]) for rows in values]
        close = logits(build(family).to(TORCH[dtype]).float(), rounded)
        read = reader.load(tmp_path / "ft", torch.float32)
        step = torch.finfo(TORCH[dtype]).eps
        assert torch.allclose(logits(read.model, read.prefixes), close, rtol=0, atol=2 * step)
        assert torch.allclose(logits(found.model, found.prefixes), with_prefix, rtol=0, atol=64 * step)
    assert (logits(found.model, [None, None, None]) - with_prefix).abs().max() > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_folders_of_the_originals_converters(tmp_path: Path, family: str):
    model = build(family)
    export(save(model, tmp_path / "model"), tmp_path / "ft", 2, corrections=Corrections(False, False, False))
    recorded = logits(reader.load(tmp_path / "ft").model, [None] * 3)
    wanted = logits(model, [None] * 3)
    assert torch.allclose(recorded, wanted, rtol=0, atol=1e-5)  # conversion.json says what was divided
    (tmp_path / "ft" / "conversion.json").unlink()
    found = reader.load(tmp_path / "ft")
    wrong = family == "sequential"
    assert torch.allclose(logits(found.model, [None] * 3), wanted, rtol=0, atol=1e-5) != wrong


@pytest.mark.parametrize(
    "changes",
    [{"hidden_act": "relu"}, {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 1.0}},
     {"max_position_embeddings": 77}],
)  # fmt: skip
def test_what_the_format_has_no_place_for_comes_back(tmp_path: Path, changes):
    model = build("parallel", **changes)
    export(save(model, tmp_path / "model"), tmp_path / "ft")
    found = reader.load(tmp_path / "ft").model
    assert torch.allclose(logits(found, [None] * 3), logits(model, [None] * 3), rtol=0, atol=1e-5)
    assert found.config.max_position_embeddings == model.config.max_position_embeddings


def test_a_folder_of_several_is_named(tmp_path: Path):
    export(save(build("gpt2"), tmp_path / "model"), tmp_path / "ft", 2)
    (tmp_path / "ft" / "1-gpu").mkdir()
    with pytest.raises(CourseError, match="found: 1-gpu, 2-gpu"):
        reader.load(tmp_path / "ft")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["gptneox", "gpt"]), st.sampled_from([1, 2, 3]), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4)
)  # fmt: skip
def test_parts_and_their_inverse(family: layout.Family, ranks: int, heads: int, size: int, inner: int, length: int):
    config = FtConfig(
        family, "x", heads * ranks, size, inner * ranks, 1, 5, 0, 0, "fp32", ranks, tasks=(PrefixTask("t", length),)
    )
    for name, spec in layout.weights(config).items():
        weight = torch.randn(weight_map.shape(spec, config))
        whole = weight_map.to_ft(weight, spec, config)
        assert whole.shape == spec.shape and torch.equal(weight_map.from_ft(whole, spec, config), weight), name
        parts = [whole] if spec.axis is None else whole.chunk(ranks, spec.axis)
        assert all(part.shape == spec.part(ranks) for part in parts), name
    values = torch.randn(length, 2 * config.hidden)
    assert torch.equal(weight_map.prefix_values(weight_map.prefix_stored(values, config)), values)


@pytest.mark.parametrize("encoding", [("utf-8", "surrogateescape"), ("ascii", "surrogateescape")])
def test_paths_of_a_process_without_a_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: tuple[str, str]
):
    """Triton's stub: Python decodes the bytes of paths as ASCII, and shows others as surrogates."""
    monkeypatch.setattr(os, "fsdecode", lambda raw: raw.decode(*encoding))
    path = layout.native("/日本/weights")
    assert path.encode(*encoding) == "/日本/weights".encode()
    assert layout.native("/plain") == "/plain" and layout.native(path) == path
    assert layout.shown(f"{path}: no such folder") == "/日本/weights: no such folder"
    assert layout.shown("temperature: 0 は不可") == "temperature: 0 は不可"


def test_japanese_folders_and_task_names(tmp_path: Path):
    """In a process in the locale C, as Triton's stub is."""
    model = build("gpt2")
    tasks = [as_task(name, values) for (_, values), name in zip(TASKS, ("要約", "平文", "無"), strict=True)]
    export(save(model, tmp_path / "model"), tmp_path / "重み", 1, "fp32", tasks)
    code = (
        "import sys; from pathlib import Path; from course_lib.serving import layout, reader\n"
        "assert sys.getfilesystemencoding() == 'ascii', sys.getfilesystemencoding()\n"
        f"found = reader.load(Path(layout.native({str(tmp_path / '重み')!a})))\n"
        "print(sum(float(one.sum()) for one in found.prefixes if one is not None))"
    )
    environment = os.environ | {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "utf8",
    }
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    expected = sum(float(values.sum()) for _, values in TASKS if values is not None)
    assert float(said.stdout.split()[-1]) == pytest.approx(expected, rel=1e-6)

"""The profiles of the rehearsal differ from those of the course in sizes alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from course_lib.settings import config, profiles
from course_lib.workspace import chapters
from course_lib.workspace.products import Product

from tests.rehearsal import HERE, PROFILES

# The dotted keys that a small profile may change, without the name of their product.
SIZES = {
    "vocab_size", "limit_alphabet", "size", "texts", "layers", "num_context", "d_spout", "shards",
    "model.vocab_size", "model.hidden_size", "model.num_layers", "model.num_attention_heads",
    "model.max_position_embeddings", "model.warm_start_steps",
    *(f"model.shape.{key}" for key in
      ("vocab_size", "d_model", "d_ff", "d_ext", "num_switch_layers", "num_heads", "num_experts")),
    "data.seq_length", "data.train_tokens", "data.num_context",
    "batch.global_size", "batch.local_size", "batch.micro_size",
    "data.split",
    "engine.max_steps", "engine.max_seconds", "engine.num_train_epochs", "engine.eval_iters", "engine.eval_freq", "engine.save_steps",
    "optimizer.lr.warmup_steps", "launch.ranks", "launch.device",
    # not a size: ranks on a CPU have no fp16
    "precision.dtype",
}  # fmt: skip


def settings(profile: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Product, dict[str, Any]]]:
    """Yield the products of a profile with their settings by dotted key."""
    monkeypatch.setenv("COURSE_PROFILE", profile)
    for product in chapters.products():
        chosen, _ = product.resolve()
        yield product, config.flat(chosen if isinstance(chosen, dict) else config.to_dict(chosen))


@pytest.mark.parametrize("name", PROFILES)
def test_only_sizes_differ(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = dict(settings(str(HERE / f"{name}-small.yaml"), monkeypatch))
    real = dict(settings(name, monkeypatch))
    assert [product.name for product in small] == [product.name for product in real]
    changed = {
        key
        for product, values in real.items()
        for key in values.keys() | small[product].keys()
        if values.get(key) != small[product].get(key)
    }
    assert changed - SIZES == set()
    of_machine = {"engine.max_seconds"} if name == "laptop" else {"launch.device"}
    assert {"vocab_size", "engine.max_steps", *of_machine} <= changed


def test_every_run_of_the_rehearsal_is_used() -> None:
    named = " ".join(path.read_text(encoding="utf8") for path in HERE.glob("*-small.yaml"))
    runs = [path for path in HERE.glob("*-small.yaml") if path.stem.removesuffix("-small") not in PROFILES]
    assert [path.name for path in runs if path.name not in named] == []


def test_the_profiles_are_those_of_the_course() -> None:
    assert {*PROFILES} == {*profiles.BUNDLED} - {"tiny"}

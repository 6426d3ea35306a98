"""The timed runs gpt2-aozora and gpt2-laptop with a small model, not compiled, on CPU, by a clock that counts its readings."""

from functools import partial
from itertools import count

import pytest
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.pretrain import text_codec
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import log
from course_lib.training.loop import train

from tests.pretrain.test_training import inputs

SMALL = (
    "model.hidden_size=32", "model.num_layers=1", "model.num_attention_heads=2", "batch.global_size=4", "batch.micro_size=4",
    "model.max_position_embeddings=64", "data.seq_length=64", "model.vocab_size=300",
    "engine.max_seconds=300", "engine.logging_freq=1", "precision.dtype=fp32", "engine.compile=false", "launch.device=cpu", "launch.threads=1",
)  # fmt: skip


@pytest.mark.parametrize(("name", "split"), [("gpt2-aozora.yaml", "1,0,0"), ("gpt2-laptop.yaml", "9,1,0")])
def test_a_timed_run_follows_the_trapezoid_and_writes(name, split, tmp_path, monkeypatch):
    monkeypatch.setattr(log, "Meter", partial(log.Meter, clock=partial(next, count())))
    data = inputs(tmp_path)
    named = [f"data.input=[{data}/tokens]", f"data.tokenizer={data}/tokenizer", f"engine.output_dir={tmp_path}/run"]
    settings = config.load(PretrainConfig, name, [*SMALL, *named, f"data.split={split}"])
    run = Gpt2(settings)
    trained = train(run, on_message=lambda _: None)
    entries = [entry for entry in log.read(trained.folder) if entry["kind"] == "train"]
    rates = [entry["learning_rate"] for entry in entries]
    highest = settings.optimizer.lr.max
    # Level for 23 % of the time, and at last down to nothing.
    assert max(rates) == highest and rates.count(highest) > 1 and rates[-1] < 0.2 * highest
    assert entries[-1]["loss"] < entries[0]["loss"] - 0.3
    run.export(tmp_path / "model")
    written = Generator(tmp_path / "model", text_codec.load).generate(["w7"], GenerateConfig(max_new_tokens=4))
    assert written[0][0].text

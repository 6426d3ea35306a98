"""The learning-rate schedule by step and by time: shapes, and the earlier shapes to the last bit."""

import math

import pytest
from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings.config import build
from course_lib.training.lr_schedule import learning_rate, learning_rate_at_time
from course_lib.training.settings import RateConfig


def as_before(rate: RateConfig, step: int, last_step: int) -> float:
    """The schedule of version 1.0, which had no trapezoid and no time."""
    decay = rate.decay_steps or last_step
    warmup = rate.warmup_rate * decay if rate.warmup_steps is None else rate.warmup_steps
    if warmup and step <= warmup:
        return rate.max * step / warmup
    if step >= decay:
        return rate.min
    share = (step - warmup) / (decay - warmup)
    left = 1 - share if rate.decay == "linear" else 0.5 * (1 + math.cos(math.pi * share))
    return rate.min + left * (rate.max - rate.min)


@pytest.mark.parametrize("decay", ["cosine", "linear"])
@pytest.mark.parametrize(
    "chosen", [{}, {"warmup_steps": 7}, {"warmup_rate": 0.13, "decay_steps": 61}, {"warmup_steps": 0, "min": 0.0}]
)
def test_cosine_and_linear_are_what_they_were(decay, chosen):
    rate = RateConfig(max=3.1e-3, decay=decay, **chosen)
    for step in range(1, 101):
        assert learning_rate(rate, step, 100) == as_before(rate, step, 100)


def test_a_trapezoid_rises_stays_and_falls():
    rate = RateConfig(max=2e-3, min=0.0, warmup_rate=0.02, decay="trapezoid", decay_rate=0.75)
    by_step = [learning_rate(rate, step, 1000) for step in (1, 10, 20, 21, 250, 625, 999, 1000, 1001)]
    assert by_step == pytest.approx([1e-4, 1e-3, 2e-3, 2e-3, 2e-3, 1e-3, 2e-3 / 750, 0, 0])


@pytest.mark.parametrize("decay", ["cosine", "linear", "trapezoid"])
def test_the_share_of_time_serves_as_the_share_of_steps(decay):
    rate = RateConfig(max=2e-3, min=1e-4, warmup_rate=0.1, decay=decay)
    assert learning_rate_at_time(rate, 0.0, 250.0) == 0
    for step in range(1, 101):
        seconds = 2.5 * step
        assert learning_rate_at_time(rate, seconds, 250.0) == pytest.approx(learning_rate(rate, step, 100))


MUON = {"name": "muon"}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"optimizer": {"lr": {"decay": "trapezoid", "warmup_rate": 0.3}}}, "optimizer.lr.decay_rate: 0.75"),
        ({"optimizer": {"lr": {"decay": "trapezoid", "warmup_steps": 30}}, "engine": {"max_steps": 100}}, "decay_rate"),
        ({"engine": {"max_seconds": 60.0, "max_steps": 5}}, "engine.max_steps, engine.max_seconds: set together"),
        ({"engine": {"max_seconds": 60.0, "num_train_epochs": 1.0}}, "set together"),
        ({"engine": {"max_seconds": 60.0}, "data": {"train_tokens": 5}}, "set together"),
        ({"engine": {"max_seconds": 60.0}, "launch": {"ranks": 2}}, "engine.max_seconds: 60 is not allowed on 2 ranks"),
        ({"engine": {"max_seconds": 60.0}, "optimizer": {"lr": {"warmup_steps": 3}}}, "optimizer.lr.warmup_steps: 3"),
        ({"engine": {"max_seconds": 60.0}, "optimizer": {"lr": {"decay_steps": 3}}}, "optimizer.lr.decay_steps: 3"),
        ({"optimizer": MUON, "model": {"architecture": "gpt-neox"}}, "optimizer.name: muon is not allowed"),
        ({"optimizer": MUON, "launch": {"ranks": 2}}, "optimizer.name: muon is not allowed on 2 ranks"),
        ({"optimizer": MUON, "zero": {"offload_optimizer": True}}, "zero.offload_optimizer: True is not allowed with"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(sections, said):
    with pytest.raises(UsageError) as error:
        build(PretrainConfig, sections)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_shares_that_fill_the_length_are_allowed():
    build(PretrainConfig, {"optimizer": {"lr": {"decay": "trapezoid", "warmup_rate": 0.1, "decay_rate": 0.9}}})
    settings = build(PretrainConfig, {"optimizer": MUON, "engine": {"max_seconds": 60.0}})
    assert settings.problem_with_ranks(1) is None
    assert str(settings.problem_with_ranks(4)).startswith("optimizer.name: muon is not allowed on 4 ranks")


@pytest.mark.parametrize("kind", ["gptsan", "prefix"])
def test_muon_trains_only_gpt2(kind):
    from course_lib.gptsan.config import GPTSanRunConfig
    from course_lib.prefix.config import PrefixConfig

    with pytest.raises(UsageError, match="optimizer.name: muon is not allowed"):
        build({"gptsan": GPTSanRunConfig, "prefix": PrefixConfig}[kind], {"optimizer": MUON})

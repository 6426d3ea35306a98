"""Exercises for the second half of chapter 4: settings that fit, memory with ZeRO, and the learning-rate schedule."""

from typing import Any

from course_lib.exercises import Chapter, Exercise
from course_lib.language.words import tr
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import planner

CARD, GPUS, SAMPLES = 16e9, 8, 528


def _check_changes(answer: Any) -> str | None:
    """Plan GPT-2 XL with the learner's overrides and judge the plan."""
    settings = config.load(PretrainConfig, "gpt2-xl.yaml", ["zero.offload_optimizer=false", *answer])
    plan, samples = planner.plan(settings, GPUS), settings.batch.resolve(GPUS).total
    if (settings.model.hidden_size, settings.model.num_layers, settings.data.seq_length) != (1600, 48, 1024):
        return tr("this is no longer GPT-2 XL on 1,024 tokens: leave model and data sizes.")
    if samples != SAMPLES:
        return tr("a step has {samples} samples instead of {all}: keep global_size.", samples=samples, all=SAMPLES)
    figure = tr("The plan is {size:.1f} GB per GPU", size=plan.total / 1e9)
    if settings.model.recompute != "none" or settings.zero.stage > 2 or settings.zero.offload_optimizer:
        return tr("{figure}: there is a way without offload, recomputation and ZeRO-3.", figure=figure)
    if plan.total <= CARD:
        return None
    most = max(("activations", "logits", "weights", "optimizer"), key=plan.parts.__getitem__)
    return tr("{figure}, too much. The largest part is {most}: what makes it smaller?", figure=figure, most=tr(most))


def zero_bytes(parameters: int, ranks: int, stage: int) -> float:
    """Return the number of bytes that weights, gradients and optimizer states take on each GPU.

    Training uses mixed precision and Adam. Source: ZeRO, Rajbhandari et al. 2020, arXiv:1910.02054.
    """
    weights = 2 * parameters / (ranks if stage >= 3 else 1)
    gradients = 2 * parameters / (ranks if stage >= 2 else 1)
    optimizer = 12 * parameters / (ranks if stage >= 1 else 1)
    return weights + gradients + optimizer


def learning_rate(step: int, warmup: int, decay: int, high: float, low: float) -> float:
    """Return the learning rate for update `step` (from 1): linear warm-up to `high`, then half a cosine to `low`."""
    from math import cos, pi

    if step <= warmup:
        return high * step / warmup
    if step >= decay:
        return low
    share = (step - warmup) / (decay - warmup)
    return low + (high - low) * (1 + cos(pi * share)) / 2


CHAPTER = Chapter(
    Exercise(
        "choose settings that fit GPT-2 XL on 8 GPUs of 16 GB without offload, recomputation or ZeRO-3",
        _check_changes,
        (
            'Print plan.parts: what is the largest proportional to? The answer is a list like ["batch.micro_size=3"].',
            "Activations and logits grow with the micro-batch; more micro-batches are then accumulated in a step.",
        ),
        ["batch.micro_size=2"],
        "A micro-batch of 2 needs 15.8 GB and 33 accumulations a step, one of 1 needs 12.3 GB and 66. The batch of 528 "
        "samples, and so the training, stays the same. Smaller micro-batches use a GPU less well, so take the largest "
        "that fits.",
    ),
    Exercise(
        "write a function zero_bytes(parameters, ranks, stage): bytes of weights, gradients and optimizer states "
        "on each GPU",
        (
            ((1000, 4, 0), "stage 0 shards nothing: every GPU holds 2 + 2 + 12 bytes per parameter"),
            ((1000, 2, 1), "stage 1 shards the optimizer states alone, 12 bytes: 2 + 2 + 12/2"),
            ((1000, 8, 2), "stage 2 shards gradients too, but each GPU keeps all weights: 2 + (2 + 12)/8"),
            ((1_557_200_000, 4, 3), "stage 3 shards all three: (2 + 2 + 12)/4"),
        ),
        (
            "In mixed precision a parameter takes 2 bytes of weight, 2 of gradient and 12 of optimizer states.",
            "Divide optimizer states by ranks from stage 1 on, gradients from stage 2 on, weights from stage 3 on.",
        ),
        zero_bytes,
        "ZeRO stage 2 shards 14 of the 16 bytes and sends no more data than plain data parallelism. Stage 3 shards all "
        "16 bytes and sends 50 % more data.",
    ),
    Exercise(
        "write a function learning_rate(step, warmup, decay, high, low): linear warm-up, half a cosine down to low, "
        "then low",
        (
            ((1, 10, 110, 1.0, 0.2), "updates count from 1, so the first has one tenth of high"),
            ((60, 10, 110, 1.0, 0.0), "half of the decay is over, because it begins after the warm-up"),
            ((35, 10, 110, 1.0, 0.2), "a quarter of it is over; 1 + cos falls, 1 - cos would rise"),
            ((160, 10, 110, 1.0, 0.2), "after the decay the learning rate stays at low; the cosine would rise again"),
        ),
        (
            "There are three cases: up to step warmup, from step decay on, and between them. Updates count from 1.",
            "Between them, share = (step - warmup)/(decay - warmup), and (1 + cos(pi * share))/2 falls from 1 to 0.",
        ),
        learning_rate,
        "With high and low exchanged, the same formula rises after the warm-up.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

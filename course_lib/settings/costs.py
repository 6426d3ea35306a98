"""What a profile downloads, and the estimated hours and disk space of its chapters on this machine.

The figures are estimates from the sizes and rates below and from matrix products timed on this machine. They tell
minutes from hours and days.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.corpus.config import Sources
from course_lib.corpus.products import own_files
from course_lib.gptsan import products as gptsan
from course_lib.gptsan.config import RecipeConfig as GptsanRecipe
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.language.messages import Remark
from course_lib.language.words import mark, tr
from course_lib.parallel import default_workers
from course_lib.prefix import products as prefix
from course_lib.prefix.config import RecipeConfig as PrefixRecipe
from course_lib.pretrain import products as pretrain
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training.memory import plan

# Sizes as published, November 2026 [bytes]: download, plain text in it.
JAWIKI = (4_500_000_000, 4_000_000_000)
# The parts of the dump differ in size; this is the first one.
JAWIKI_PART = (300_000_000, 270_000_000)
CC100 = (15_000_000_000, 75_000_000_000)
# Plain text in the bundled samples [bytes].
SAMPLES = {"wikipedia": 690_000, "webtext": 230_000}
# Bytes of text in a byte of a compressed file, by suffix.
PACKED = {".gz": 2.5, ".bz2": 3, ".xz": 3}
# Repository on the Hub → (download [bytes], license).
MODELS = {
    "Tanrei/GPTSAN-japanese": (11_200_000_000, "MIT"),
    "rinna/japanese-gpt-neox-small": (450_000_000, "MIT"),
    "rinna/japanese-gpt-neox-3.6b-instruction-ppo": (7_400_000_000, "MIT"),
}
# Bytes of text per second and core, measured on two cores of an AMD EPYC (tests/bench/README.md).
EXTRACT, SEGMENT, TOKENIZE = 1.4e6, 2.4e6, 9e6
# Duplicates are searched for in one process.
CLEAN = 4e6
# Seconds of BPE and Unigram training per byte of the sampled lines, all five tokenizers together.
TOKENIZERS = 4e-6
# Average bytes per line, and of UTF-8 text per token of a 32,000-entry vocabulary.
LINE, TOKEN = 120, 6.0
# Share of the measured rate of matrix products that training reaches, and the least duration of a step [s]: the tiny
# models took 70 to 120 s for 500 steps on two quiet cores.
TRAINING, STEP = 0.4, 0.12


@dataclass(frozen=True)
class Download:
    """A file or model that the profile downloads. `size` is None if it is unknown [bytes]."""

    what: str
    size: int | None
    license: str


@dataclass(frozen=True)
class Stage:
    """A part of the work: its estimated duration [h] and disk space [bytes], and what it does."""

    chapter: int
    hours: float
    disk: float
    what: str


def downloads() -> Iterator[Download]:
    """Yield what the current profile downloads."""
    sources = config.section("corpus.sources", Sources)
    if sources.wikipedia == "download":
        what = (
            Remark(mark("Japanese Wikipedia, {date}, part {part}"), date=sources.date, part=sources.part)
            if sources.part
            else Remark(mark("Japanese Wikipedia, {date}"), date=sources.date)
        )
        size = (JAWIKI_PART if sources.part else JAWIKI)[0]
        yield Download(what, size, mark("CC BY-SA 4.0 and GFDL"))
    if sources.webtext == "download":
        terms = mark("terms of use of Common Crawl; rights of the pages' authors")
        yield Download(mark("CC-100, Japanese"), CC100[0], terms)
    recipes: tuple[Any, ...] = (
        config.section("gptsan.recipe", GptsanRecipe),
        config.section("prefix.recipe", PrefixRecipe),
    )
    for recipe in recipes:
        if recipe.checkpoint and not Path(recipe.checkpoint).is_dir():
            known = MODELS.get(recipe.checkpoint)
            yield Download(recipe.checkpoint, *(known or (None, mark("see its page on the Hub"))))


def stages() -> list[Stage]:
    """Return the estimated work of the current profile, in order."""
    cores, (wikipedia, webtext) = default_workers(), texts()
    text, loaded = wikipedia + webtext, sum(each.size or 0 for each in downloads())
    lines = min(text, LINE * (sampled() or text / LINE))
    found = [
        Stage(
            1,
            wikipedia / EXTRACT / cores / 3600 + webtext / CLEAN / 3600,
            loaded + text,
            mark("extraction and cleaning"),
        ),
        Stage(2, text / SEGMENT / cores / 3600, 1.2 * text, mark("segmentation")),
        Stage(3, lines * TOKENIZERS / 3600, 1e7, mark("five tokenizers")),
        Stage(4, text / TOKENIZE / cores / 3600, 2 * text / TOKEN, mark("token files")),
    ]
    return found + [_training(*run, tokens=text / TOKEN) for run in runs()]


def texts() -> tuple[float, float]:
    """Return the plain text of the encyclopedia and of the web text or the user's own texts [bytes]."""
    sources = config.section("corpus.sources", Sources)
    whole = JAWIKI_PART if sources.part else JAWIKI
    wikipedia = whole[1] if sources.wikipedia == "download" else SAMPLES["wikipedia"]
    if sources.webtext == "files":
        return wikipedia, sum(path.stat().st_size * PACKED.get(path.suffix, 1) for path in own_files(sources))
    return wikipedia, CC100[1] if sources.webtext == "download" else SAMPLES["webtext"]


def sampled() -> int:
    """Return the number of lines that the BPE tokenizers are trained on; 0 means all."""
    from course_lib.subword.config import BpeConfig

    return config.section("subword.bpe", BpeConfig).input_sentence_size


def runs() -> Iterator[tuple[int, str, Any, int]]:
    """Yield (chapter, what it trains, settings, number of samples or 0 if it is unknown) for each training run."""
    yield 4, "GPT-2", pretrain.recipe_settings(), 0
    if not config.section("gptsan.recipe", GptsanRecipe).checkpoint:
        yield 5, "GPTSAN", gptsan.base_settings(), 0
    classes = config.section("gptsan.classes", EncodeConfig)
    stage = Remark(mark("extra stage, context of {tokens} tokens"), tokens=classes.num_context)
    yield 5, stage, gptsan.planned(gptsan.tuned_settings()), 0
    recipe = config.section("prefix.recipe", PrefixRecipe)
    if not recipe.checkpoint:
        yield 6, "GPT-NeoX", config.load(PretrainConfig, recipe.base), 0
    for name, settings in prefix.task_settings().items():
        assert settings.data.input
        with open(settings.data.input, "rb") as file:
            yield 6, Remark(mark("prefix `{name}`"), name=name), settings, sum(1 for _ in file)


def _training(chapter: int, what: str, settings: Any, samples: int, tokens: float) -> Stage:
    """Estimate a training run. `tokens` is the length of an epoch for runs on the whole corpus."""
    sizes, engine = settings.sizes(), settings.engine
    ranks = settings.launch.ranks or 1
    per_step = settings.batch.resolve(ranks).total * sizes.length
    epoch = samples * sizes.length if samples else 0.949 * tokens
    trained = (
        engine.max_steps * per_step
        if engine.max_steps
        else getattr(settings.data, "train_tokens", None) or (engine.num_train_epochs or 1) * epoch
    )
    step = max(STEP, per_step * sizes.flops_per_token / (TRAINING * _rate(settings.precision.dtype)))
    hours = trained / per_step * step / 3600
    elements = sum(number for number, _ in sizes.trained)
    keep = engine.keep_checkpoints or 1
    disk = 16 * elements * keep + 2 * sizes.parameters
    run = Remark(
        mark("{run}: {parameters:,.0f} M parameters, trains on {tokens:,.1f} M tokens"),
        run=what,
        parameters=sizes.parameters / 1e6,
        tokens=trained / 1e6,
    )
    lacking = _lacking(settings, ranks)
    return Stage(chapter, hours, disk, Remark(mark("{run}; {lacking}"), run=run, lacking=lacking) if lacking else run)


def _lacking(settings: Any, ranks: int) -> str:
    """Return what this machine lacks for a run; "" if it lacks nothing."""
    import torch

    if settings.launch.device == "cpu":
        return ""
    need, gpus = plan(settings, ranks).total, torch.cuda.device_count()
    room = torch.cuda.get_device_properties(0).total_memory if gpus else 0
    if gpus >= ranks and need <= room:
        return ""
    sizes = {"ranks": ranks, "need": need / 1e9}
    if gpus:
        sizes |= {"gpus": gpus, "room": room / 1e9}
        many = mark("planned for {ranks} GPUs with {need:.0f} GB, here {gpus} of {room:.0f} GB")
        one = mark("planned for {ranks} GPU with {need:.0f} GB, here {gpus} of {room:.0f} GB")
    else:
        many = mark("planned for {ranks} GPUs with {need:.0f} GB, here none")
        one = mark("planned for {ranks} GPU with {need:.0f} GB, here none")
    return Remark(many if ranks > 1 else one, **sizes)


def machine() -> str:
    """Return this machine's cores, memory and GPUs as text in the reader's language."""
    import torch

    gpus = torch.cuda.device_count()
    parts = {"cores": default_workers(), "memory": psutil.virtual_memory().total / 1e9}
    if not gpus:
        return tr("{cores} cores, {memory:.0f} GB of memory, no GPU", **parts)
    card = torch.cuda.get_device_name()
    return tr("{cores} cores, {memory:.0f} GB of memory, {gpus} × {card}", **parts, gpus=gpus, card=card)


@cache
def _rate(dtype: NumberFormat) -> float:
    """Return the measured rate of matrix products on this machine's devices [FLOP/s], all GPUs or cores together."""
    import torch

    from course_lib.checkpoints.compute import one_thread
    from course_lib.checkpoints.torch_dtypes import TORCH

    gpus, cores = torch.cuda.device_count(), default_workers()
    side, device = (8192, "cuda") if gpus else (256, "cpu")
    # Emulation of 16-bit formats on a CPU is part of the measurement.
    a = torch.ones(side, side, dtype=TORCH[dtype], device=device)
    best = float("inf")
    # One thread and the shortest of many products: other programs on the machine disturb this measurement least.
    with one_thread():
        ends = time.perf_counter() + 0.5
        while best == float("inf") or time.perf_counter() < ends:
            started = time.perf_counter()
            (a @ a)[0, 0].item()
            best = min(best, time.perf_counter() - started)
    return 2 * side**3 / best * (gpus or cores)

"""What a profile downloads, and the estimated hours and disk space of its chapters on this machine.

The figures are estimates from recorded sizes and rates (tests/bench/README.md) and from a matrix product timed here.
They say whether a chapter takes minutes, hours or weeks.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from course_lib import config
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.corpus.config import Sources
from course_lib.corpus.products import own_files
from course_lib.gptsan import products as gptsan
from course_lib.gptsan.config import RecipeConfig as GptsanRecipe
from course_lib.gptsan.encode_config import EncodeConfig
from course_lib.parallel import default_workers
from course_lib.prefix import products as prefix
from course_lib.prefix.config import RecipeConfig as PrefixRecipe
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.config import RecipeConfig as PretrainRecipe
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
# Share of the measured matrix product rate that training reaches: half on a GPU, more on a CPU.
TRAINING = 0.4


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
        part = f", part {sources.part}" if sources.part else ""
        size = (JAWIKI_PART if sources.part else JAWIKI)[0]
        yield Download(f"Japanese Wikipedia, {sources.date}{part}", size, "CC BY-SA 4.0 and GFDL")
    if sources.webtext == "download":
        yield Download("CC-100, Japanese", CC100[0], "terms of use of Common Crawl; rights of the pages' authors")
    recipes: tuple[Any, ...] = (
        config.section("gptsan.recipe", GptsanRecipe),
        config.section("prefix.recipe", PrefixRecipe),
    )
    for recipe in recipes:
        if recipe.checkpoint and not Path(recipe.checkpoint).is_dir():
            known = MODELS.get(recipe.checkpoint)
            yield Download(recipe.checkpoint, *(known or (None, "see its page on the Hub")))


def stages() -> list[Stage]:
    """Return the estimated work of the current profile, in order."""
    cores, (wikipedia, webtext) = default_workers(), texts()
    text, loaded = wikipedia + webtext, sum(each.size or 0 for each in downloads())
    lines = min(text, LINE * (sampled() or text / LINE))
    found = [
        Stage(1, wikipedia / EXTRACT / cores / 3600 + webtext / CLEAN / 3600, loaded + text, "extraction and cleaning"),
        Stage(2, text / SEGMENT / cores / 3600, 1.2 * text, "segmentation"),
        Stage(3, lines * TOKENIZERS / 3600, 1e7, "five tokenizers"),
        Stage(4, text / TOKENIZE / cores / 3600, 2 * text / TOKEN, "token files"),
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
    """Yield (chapter, what it trains, settings, number of samples if they are known, else 0) for each training run."""
    yield 4, "GPT-2", config.load(PretrainConfig, config.section("pretrain.recipe", PretrainRecipe).config), 0
    if not config.section("gptsan.recipe", GptsanRecipe).checkpoint:
        yield 5, "GPTSAN", gptsan.base_settings(), 0
    classes = config.section("gptsan.classes", EncodeConfig)
    yield 5, f"extra stage, {classes.num_context} tokens", gptsan.planned(gptsan.tuned_settings()), 0
    recipe = config.section("prefix.recipe", PrefixRecipe)
    if not recipe.checkpoint:
        yield 6, "GPT-NeoX", config.load(PretrainConfig, recipe.base), 0
    for name, settings in prefix.task_settings().items():
        assert settings.data.input
        with open(settings.data.input, "rb") as file:
            yield 6, f"prefix `{name}`", settings, sum(1 for _ in file)


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
    hours = trained * sizes.flops_per_token / (TRAINING * _rate(settings.precision.dtype)) / 3600
    elements = sum(number for number, _ in sizes.trained)
    keep = engine.keep_checkpoints or 1
    need, room = plan(settings, ranks).total, memory()
    fits = "" if need <= room else f"; needs {need / 1e9:.0f} GB on each device, here {room / 1e9:.0f} GB"
    disk = 16 * elements * keep + 2 * sizes.parameters
    size = f"{sizes.parameters / 1e6:,.0f} M parameters"
    return Stage(chapter, hours, disk, f"{what}: {size}, {trained / 1e6:,.1f} M tokens{fits}")


def machine() -> str:
    """Return this machine's cores, memory and GPUs as text."""
    import torch

    gpus = torch.cuda.device_count()
    cards = f"{gpus} × {torch.cuda.get_device_name()}" if gpus else "no GPU"
    return f"{default_workers()} cores, {psutil.virtual_memory().total / 1e9:.0f} GB of memory, {cards}"


def memory() -> int:
    """Return the memory of a GPU, or of this machine if it has none [bytes]."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(0).total_memory)
    return int(psutil.virtual_memory().total)


@cache
def _rate(dtype: NumberFormat) -> float:
    """Return the measured rate of matrix products on this machine's devices [FLOP/s], all GPUs or cores together."""
    import torch

    from course_lib.checkpoints.torch_dtypes import TORCH

    gpus = torch.cuda.device_count()
    device = "cuda" if gpus else "cpu"
    side = 8192 if gpus else 512
    # CPUs without 16-bit units emulate these formats; their rate is measured as it is.
    a = torch.ones(side, side, dtype=TORCH[dtype], device=device)
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - started)
    return 2 * side**3 / best * max(gpus, 1)

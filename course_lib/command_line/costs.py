"""What the current profile downloads, and the estimated hours and disk space of its chapters on this machine."""

import timeit
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.corpus.config import SOURCES_SECTION
from course_lib.corpus.products import given_files, user_files
from course_lib.files import OPENERS
from course_lib.gptsan import products as gptsan
from course_lib.gptsan.config import RECIPE_SECTION as GPTSAN_RECIPE
from course_lib.language.words import tr
from course_lib.parallel import default_workers
from course_lib.prefix import products as prefix
from course_lib.prefix.config import RECIPE_SECTION as PREFIX_RECIPE
from course_lib.pretrain import products as pretrain
from course_lib.subword.config import BPE_SECTION
from course_lib.training.memory import plan

# Sizes as published, November 2026 [bytes]: download, plain text in it. JAWIKI_PART is the first part of the dump.
JAWIKI, JAWIKI_PART, CC100 = (4.5e9, 4.0e9), (3.0e8, 2.7e8), (1.5e10, 7.5e10)
# Plain text in the bundled samples, and in a byte of a compressed file [bytes].
WIKIPEDIA_SAMPLE, WEBTEXT_SAMPLE, PACKED = 690_000, 230_000, 3
# Repository on the Hub → download [bytes], license.
MODELS = {
    "Tanrei/GPTSAN-japanese": (1.12e10, "MIT"),
    "rinna/japanese-gpt-neox-small": (4.5e8, "MIT"),
    "rinna/japanese-gpt-neox-3.6b-instruction-ppo": (7.4e9, "MIT"),
}
# Bytes of text per second and core, measured on two cores of an AMD EPYC (tests/bench/README.md). The search for
# duplicates (CLEAN) runs in one process.
EXTRACT, SEGMENT, TOKENIZE, CLEAN = 1.4e6, 2.4e6, 9e6, 4e6
# Seconds per byte of the sampled lines for all five tokenizers.
TOKENIZERS = 4e-6
# Average bytes per line, and of UTF-8 text per token of a 32,000-entry vocabulary.
LINE, TOKEN = 120, 6.0
# Share of the measured rate of matrix products that training reaches, and the least duration of a step [s].
TRAINING, STEP = 0.4, 0.12


class Stage(NamedTuple):
    """A part of the work: its estimated duration [h] and disk space [bytes], and what it does."""

    chapter: int
    hours: float
    disk: float
    what: str


def downloads() -> list[dict[str, Any]]:
    """Return what the current profile downloads: what it is, its size [bytes] (None if unknown), and its license."""
    sources, found = SOURCES_SECTION.read(), []
    if sources.wikipedia == "download":
        what = tr("Japanese Wikipedia, {date}", date=sources.date) + f" {sources.part or ''}".rstrip()
        found.append((what, (JAWIKI_PART if sources.part else JAWIKI)[0], tr("CC BY-SA 4.0 and GFDL")))
    if sources.webtext == "download":
        terms = tr("terms of use of Common Crawl; rights of the pages' authors")
        found.append((tr("CC-100, Japanese"), CC100[0], terms))
    for checkpoint in (GPTSAN_RECIPE.read().checkpoint, PREFIX_RECIPE.read().checkpoint):
        if checkpoint and not Path(checkpoint).is_dir():
            found.append((checkpoint, *MODELS.get(checkpoint, (None, tr("see its page on the Hub")))))
    return [{"what": what, "size": size, "license": license} for what, size, license in found]


def stages() -> list[Stage]:
    """Return the estimated work of the current profile, in order."""
    sources = SOURCES_SECTION.read()
    # Plain text of the encyclopedia, and of the web text or the user's texts [bytes].
    wikipedia = float(WIKIPEDIA_SAMPLE)
    if sources.wikipedia == "download":
        wikipedia = (JAWIKI_PART if sources.part else JAWIKI)[1]
    webtext = float(WEBTEXT_SAMPLE)
    if sources.webtext == "download":
        webtext = CC100[1]
    if sources.webtext == "files":
        sizes = [(path.stat().st_size, path.suffix in OPENERS) for path in user_files(sources)]
        webtext = sum(size * PACKED if is_packed else size for size, is_packed in sizes)
    # Given documents, which GPT-2 learns in place of the others [bytes].
    given = sum(path.stat().st_size for path in given_files() if path.exists())
    text, loaded = wikipedia + webtext, sum(each["size"] or 0 for each in downloads())
    # seconds of a byte on all cores
    extract, segment, tokenize = (1 / rate / default_workers() for rate in (EXTRACT, SEGMENT, TOKENIZE))
    lines = LINE * BPE_SECTION.read().input_sentence_size or text
    work = [
        (1, wikipedia * extract + webtext / CLEAN, loaded + text, tr("extraction and cleaning")),
        (2, (text + given) * segment, 1.2 * (text + given), tr("segmentation")),
        (3, min(text, lines) * TOKENIZERS, 1e7, tr("five tokenizers")),
        (4, (given or text) * tokenize, 2 * (given or text) / TOKEN, tr("token files")),
    ]
    found = [Stage(chapter, seconds / 3600, disk, what) for chapter, seconds, disk, what in work]
    return found + [_training(*run, tokens=text / TOKEN) for run in _runs()]


def _runs() -> Iterator[tuple[int, str, Any, int]]:
    """Yield (chapter, what it trains, settings, number of samples or 0 if it is unknown) for each training run."""
    yield 4, "GPT-2", pretrain.recipe_settings(), 0
    if not GPTSAN_RECIPE.read().checkpoint:
        yield 5, "GPTSAN", gptsan.base_settings(), 0
    yield 5, tr("extra stage"), gptsan.planned(gptsan.tuned_settings()), 0
    for name, settings in prefix.task_settings().items():
        # The course's own pairs may not have been written yet.
        texts = settings.data.input
        samples = sum(1 for _ in texts.open("rb")) if texts and texts.is_file() else prefix.DOCUMENTS
        yield 6, tr("prefix `{name}`", name=name), settings, samples


def _training(chapter: int, what: str, settings: Any, samples: int, tokens: float) -> Stage:
    """Estimate a training run. `tokens` is the length of an epoch for runs on the whole corpus."""
    sizes, engine, ranks = settings.sizes(), settings.engine, settings.launch.ranks or 1
    per_step = settings.batch.resolve(ranks).total * sizes.length
    epoch = samples * sizes.length if samples else 0.949 * tokens
    trained = getattr(settings.data, "train_tokens", None) or (engine.num_train_epochs or 1) * epoch
    if engine.max_steps:
        trained = engine.max_steps * per_step
    step = max(STEP, per_step * sizes.flops_per_token / (TRAINING * _rate(settings.precision.dtype)))
    if engine.max_seconds:
        trained = engine.max_seconds / step * per_step
    disk = 16 * sum(number for number, _ in sizes.trained) * (engine.keep_checkpoints or 1) + 2 * sizes.parameters
    numbers = {"parameters": sizes.parameters / 1e6, "tokens": trained / 1e6}
    what = tr("{run}: {parameters:,.0f} M parameters, trains on {tokens:,.1f} M tokens", run=what, **numbers)
    if settings.launch.device != "cpu":
        need = plan(settings, ranks).total / 1e9
        what += tr("; planned for {ranks} × {need:.0f} GB of GPU memory", ranks=ranks, need=need)
    return Stage(chapter, trained / per_step * step / 3600, disk, what)


def machine() -> str:
    """Return this machine's cores, memory and GPUs as text."""
    import torch

    gpus, memory = torch.cuda.device_count(), psutil.virtual_memory().total / 1e9
    card = f"{gpus} × {torch.cuda.get_device_name()}" if gpus else tr("no GPU")
    return tr("{cores} cores, {memory:.0f} GB of memory, {card}", cores=default_workers(), memory=memory, card=card)


@cache
def _rate(dtype: NumberFormat) -> float:
    """Return the measured rate of matrix products on this machine's devices [FLOP/s], all GPUs or cores together."""
    import torch

    from course_lib.checkpoints.compute import one_thread
    from course_lib.checkpoints.torch_dtypes import TORCH

    gpus = torch.cuda.device_count()
    side, device = (8192, "cuda") if gpus else (256, "cpu")
    a = torch.ones(side, side, dtype=TORCH[dtype], device=device)
    timer = timeit.Timer(lambda: (a @ a)[0, 0].item())
    # One thread and the shortest of many products are what other programs on the machine disturb least.
    with one_thread():
        best = min(timer.repeat(timer.autorange()[0], 1))
    return 2 * side**3 / best * (gpus or default_workers())

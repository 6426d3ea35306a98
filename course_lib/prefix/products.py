"""Products of chapter 6: a base, and a prefix for each task of the profile.

If a profile trains its own base, the base's texts are the corpus of chapter 4 and data/chat.jsonl, and a tokenizer is
trained on the same texts. chat.jsonl has short messages with emoji and line breaks. A prefix can hardly make a frozen
model write tokens that it has never seen.

Runs are stored beside the products and are kept, as in chapter 4, so that an interrupted training can resume.
"""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config, paths
from course_lib.errors import UsageError
from course_lib.japanese.config import SegmentConfig
from course_lib.japanese.products import LINES
from course_lib.parallel import default_workers
from course_lib.prefix.config import PrefixConfig, RecipeConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.products import TEXTS
from course_lib.product import Product
from course_lib.subword.config import BpeConfig

# Holds one folder for each run.
RUNS = "prefix/runs"
TOKENIZER, TOKENS, BASE, MODEL = "prefix/tokenizer", "prefix/tokens", "prefix/base", "model"
CHAT = "chat.jsonl"
# The prefix file in the product of a task.
FILE = "prefix.safetensors"


def products() -> list[Product]:
    """Return the product of the base, and one product for each task, with the task's name.

    The base is a Hugging Face folder. If recipe.checkpoint is set, it is that existing model. Otherwise chapter 4's
    code trains the base; its tokenizer and its tokens are then products too.
    """
    recipe = config.section("prefix.recipe", RecipeConfig)
    if recipe.checkpoint:
        base = [Product(BASE, partial(_fetch, recipe.checkpoint), {"checkpoint": recipe.checkpoint}, ())]
    else:
        settings, bpe = config.load(PretrainConfig, recipe.base), config.section("subword.bpe", BpeConfig)
        texts = (*TEXTS, paths.data(CHAT))
        base = [
            Product(TOKENIZER, partial(_tokenizer, bpe), bpe, texts, ("japanese", "subword")),
            Product(
                TOKENS,
                _tokens,
                {"append_eod": True},
                (TOKENIZER, *texts),
                ("pretrain/encode.py", "pretrain/indexed.py"),
            ),
            Product(BASE, partial(_base, settings), settings, (TOKENS, TOKENIZER)),
        ]
    tasks = task_settings().values()
    return [*base, *(Product(f"prefix/{t.task_name}", partial(_task, t), _content(t), _inputs(t)) for t in tasks)]


def task_settings() -> dict[str, PrefixConfig]:
    """Return the settings of the runs that train the profile's prefixes, by task name."""
    recipe = config.section("prefix.recipe", RecipeConfig)
    runs = [with_data(config.load(PrefixConfig, file)) for file in recipe.tasks]
    return {settings.task_name: settings for settings in runs}


def run_settings(task: str, *overrides: str) -> PrefixConfig:
    """Return the settings of a task's run on the profile's own base.

    Args:
        task: name of a task of the profile.
        overrides: changed settings, as `key=value`.

    Raises:
        UsageError: the profile has no such task.
    """
    runs = task_settings()
    if task not in runs:
        raise UsageError(f"task: the profile has no task {task!r}; allowed: {', '.join(runs)}")
    values = config.to_dict(runs[task])
    values["model"]["base"] = str(paths.root() / BASE / MODEL)
    return config.build(PrefixConfig, values, overrides)


def with_data(settings: PrefixConfig) -> PrefixConfig:
    """Return the settings; if data.input is unset, it becomes the course's samples of the task.

    Raises UsageError if the course has no samples of the task.
    """
    if settings.data.input:
        return settings
    if not (paths.data(CHAT).parent / f"tasks/{settings.task_name}.jsonl").is_file():
        raise UsageError(
            f"data.input: not set, and the course has no samples of a task {settings.task_name!r}; give a file"
        )
    return replace(settings, data=replace(settings.data, input=paths.data(f"tasks/{settings.task_name}.jsonl")))


def _inputs(settings: PrefixConfig) -> tuple[Path | str, ...]:
    assert settings.data.input
    return BASE, settings.data.input


def _fetch(checkpoint: str, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.checkpoints.fetch import fetch

    return fetch(checkpoint, folder / MODEL)


def _tokenizer(settings: BpeConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.japanese.pipeline import segment_file
    from course_lib.subword.bpe import train_bpe

    *texts, chat = inputs
    with tempfile.TemporaryDirectory() as work_folder:
        lines = Path(work_folder) / LINES
        segment_file(chat, lines, config.section("japanese.segment", SegmentConfig))
        return train_bpe([*(text / LINES for text in texts), lines], folder, settings, show_progress=False)


def _tokens(folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.pretrain.encode import tokenize

    tokenizer, *texts, chat = inputs
    counts = {}
    for source in (*(text / LINES for text in texts), chat):
        name = source.parent.name if source.name == LINES else source.stem
        counts[name] = tokenize([source], tokenizer, folder / name, default_workers(), append_eod=True).tokens
    return counts


def _base(settings: PretrainConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.pretrain.products import trained

    return trained(settings, folder, inputs)


def _task(settings: PrefixConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    from course_lib.prefix.launch import export, train
    from course_lib.training import log, run_product

    def write_prefix(run: Path) -> dict[str, Any]:
        export(run, folder / FILE)
        return {}

    base = inputs[0] / MODEL
    settings = replace(settings, model=replace(settings.model, base=base))
    assert settings.data.input
    files = (settings.data.input, *sorted(base.glob("*.safetensors")))
    run_dir = run_product.run_folder(paths.root() / RUNS, _content(settings), files)
    return run_product.fill(folder, settings, run_dir, train, write_prefix, keep=(log.FILE,))


def _content(settings: PrefixConfig) -> dict[str, Any]:
    """Return the settings that a prefix depends on, without files and folders."""
    from course_lib.training import run_product

    return run_product.content(settings, ("data.input", "model.base"))

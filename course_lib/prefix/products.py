"""Products for chapter 6: a base model, and a prefix for each task in the profile.

If a profile trains its own base model, the model and its tokenizer are trained on the chapter 4 corpus, on messages
with emoji (data/chat.jsonl) and on generated sentences (sentences.py), because a prefix brings out what a frozen model
can do and hardly teaches it anything new. Runs are kept next to the products, as in chapter 4.
"""

import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.checkpoints import fetch
from course_lib.errors import UsageError
from course_lib.japanese.config import SegmentConfig
from course_lib.japanese.products import LINES
from course_lib.language.columns import padded
from course_lib.language.words import tr
from course_lib.parallel import default_workers
from course_lib.prefix.config import FILE, PrefixConfig, QuickConfig, RecipeConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.products import ENCODING, TEXTS, train
from course_lib.settings import config
from course_lib.subword.config import BpeConfig
from course_lib.workspace.products import Product

# Contains one folder per run.
RUNS = "prefix/runs"
# Name of the model folder in the base model's product.
MODEL = "model"
CHAT = "chat.jsonl"
SENTENCE_PAIRS = "sentences.jsonl"


def _recipe() -> RecipeConfig:
    return config.section("prefix.recipe", RecipeConfig)


def _sentences(folder: Path, _inputs: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    from course_lib.prefix.sentences import documents

    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in documents(settings["texts"])]
    (folder / SENTENCE_PAIRS).write_text("\n".join(lines) + "\n", encoding="utf8")
    return {"texts": len(lines), "distinct": len(set(lines))}


def _tokenizer(folder: Path, inputs: list[Path], settings: BpeConfig) -> dict[str, Any]:
    from course_lib.japanese.pipeline import segment_file
    from course_lib.subword.bpe import train_bpe

    *texts, sentences, chat = inputs
    with tempfile.TemporaryDirectory() as work_folder:
        segmented = []
        for source in (sentences / SENTENCE_PAIRS, chat):
            segmented.append(Path(work_folder) / f"{source.stem}.txt")
            segment_file(source, segmented[-1], config.section("japanese.segment", SegmentConfig))
        return train_bpe([*(text / LINES for text in texts), *segmented], folder, settings, show_progress=False)


def _tokens(folder: Path, inputs: list[Path], _settings: Any) -> dict[str, Any]:
    from course_lib.pretrain.encode import tokenize

    tokenizer, *texts, sentences, chat = inputs
    counts = {}
    for source in (*(text / LINES for text in texts), sentences / SENTENCE_PAIRS, chat):
        name = source.parent.name if source.name == LINES else source.stem
        counts[name] = tokenize([source], tokenizer, folder / name, default_workers(), append_eod=True).tokens
    return counts


def _base(folder: Path, inputs: list[Path], settings: PretrainConfig | dict[str, Any]) -> dict[str, Any]:
    if isinstance(settings, dict):
        return fetch.fetch(settings["checkpoint"], folder / MODEL)
    return train(folder, inputs, settings)


def _task(settings: PrefixConfig, folder: Path, inputs: list[Path], _content: Any) -> dict[str, Any]:
    from course_lib.prefix.export import export
    from course_lib.prefix.task import PrefixTask
    from course_lib.training import log, run_product

    def write_prefix(run: Path) -> dict[str, Any]:
        export(run, folder / FILE)
        return {}

    settings = replace(settings, model=replace(settings.model, base=inputs[0] / MODEL))
    return run_product.fill(folder, PrefixTask(settings), RUNS, write_prefix, keep=(log.FILE,))


def _base_settings() -> PretrainConfig | dict[str, Any]:
    ready = _recipe().checkpoint
    return {"checkpoint": ready} if ready else config.load(PretrainConfig, _recipe().base)


# Texts for a base model that the profile trains.
SENTENCES = Product(
    "prefix/sentences", _sentences, settings=lambda: {"texts": _recipe().sentences}, code=("prefix/sentences.py",)
)
TOKENIZER = Product(
    "prefix/tokenizer",
    build=_tokenizer,
    settings=partial(config.section, "subword.bpe", BpeConfig),
    inputs=lambda: (*TEXTS, SENTENCES, paths.data(CHAT)),
    code=("japanese", "subword"),
)
TOKENS = Product(
    "prefix/tokens",
    build=_tokens,
    settings={"append_eod": True},
    inputs=lambda: (TOKENIZER, *TEXTS, SENTENCES, paths.data(CHAT)),
    code=ENCODING,
)
# The base model as a Hugging Face folder: either recipe.checkpoint, or a model trained as in chapter 4.
BASE = Product(
    "prefix/base",
    build=_base,
    settings=_base_settings,
    inputs=lambda: () if _recipe().checkpoint else (TOKENS, TOKENIZER),
)


def products() -> list[Product]:
    """Return the chapter's products for the current profile, in build order."""
    return [*([] if _recipe().checkpoint else [SENTENCES, TOKENIZER, TOKENS]), BASE, *tasks()]


def task(name: str) -> Product:
    """Return a task's product: its prefix and run log. Raises UsageError if the profile has no such task."""
    settings = _settings_of(name)
    assert settings.data.input
    return Product(
        f"prefix/{name}", build=partial(_task, settings), settings=settings.content, inputs=(BASE, settings.data.input)
    )


def tasks() -> list[Product]:
    """Return the products for the profile's tasks, in order."""
    return [task(name) for name in task_settings()]


def task_settings() -> dict[str, PrefixConfig]:
    """Return the settings for the runs that train the profile's prefixes, by task name."""
    runs = [with_data(config.load(PrefixConfig, file)) for file in _recipe().tasks]
    return {settings.task_name: settings for settings in runs}


def run_settings(task: str, *overrides: str) -> PrefixConfig:
    """Return the settings for a task's run on the profile's base model, with overrides `key=value`."""
    values = config.to_dict(_settings_of(task))
    values["model"]["base"] = str(BASE.folder / MODEL)
    return config.build(PrefixConfig, values, overrides)


def quick() -> QuickConfig:
    """Return the settings of the notebook's short runs in the current profile."""
    return _recipe().quick


def quick_settings(task: str, *overrides: str) -> PrefixConfig:
    """Return the settings for a short run of a task in this process, as for `run_settings`. A sixth of it warms up."""
    chosen = quick()
    steps = ["engine.num_train_epochs=null", f"engine.max_steps={chosen.steps}"]
    warmup = f"optimizer.lr.warmup_steps={max(1, chosen.steps // 6)}"
    return run_settings(task, *steps, warmup, f"precision.dtype={chosen.dtype}", *overrides)


def build_base() -> str:
    """Train or fetch the base if it is missing, and return where it comes from and the tokens of each source."""
    recipe = _recipe()
    line = fetch.origin(BASE.path() / MODEL, recipe.checkpoint, recipe.base)
    counts: dict[str, int] = {} if recipe.checkpoint else (TOKENS.manifest() or {"counts": {}})["counts"]
    if not counts:
        return line
    total = sum(counts.values())
    rows = [
        tr("{source} {tokens:>9,} tokens, {share:4.0%}", source=f"{name:10}", tokens=count, share=count / total)
        for name, count in counts.items()
    ]
    name = padded(tr("together"), "<10")
    return "\n".join([line, *rows, tr("{together} {tokens:>9,} tokens", together=name, tokens=total)])


def _settings_of(task: str) -> PrefixConfig:
    runs = task_settings()
    if task not in runs:
        raise UsageError(f"task: the profile has no task {task!r}; allowed: {', '.join(runs)}")
    return runs[task]


def with_data(settings: PrefixConfig) -> PrefixConfig:
    """Return the settings, with data.input set to the course's samples for the task if it is unset."""
    if settings.data.input:
        return settings
    return replace(settings, data=replace(settings.data, input=paths.data(f"tasks/{settings.task_name}.jsonl")))

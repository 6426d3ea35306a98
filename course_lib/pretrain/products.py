"""Products for chapter 4: the token files, and the model trained on them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import UsageError
from course_lib.parallel import default_workers
from course_lib.pretrain.config import RECIPE_SECTION, PretrainConfig
from course_lib.settings import config
from course_lib.subword import products as subword
from course_lib.workspace.products import Product

if TYPE_CHECKING:
    from course_lib.pretrain.gpt2 import Gpt2

# Modules whose changes make token files stale.
ENCODING = ("pretrain/encode.py", "pretrain/indexed.py")
# Modules that fix what a run learns: its loss, its samples and its model. Others, such as the loop, may change.
TRAINING = (
    "pretrain/gpt2.py", "pretrain/data.py", "pretrain/sampling.py", "pretrain/best_fit.py", "models/causal.py",
)  # fmt: skip
# One folder per run. Runs are kept, so that interrupted training resumes and earlier checkpoints are not lost.
RUNS = "pretrain/runs"
# Name of the model folder in the product's folder.
MODEL = "model"


def recipe_settings() -> PretrainConfig:
    """Return the settings of the run that the profile names, without its token files and tokenizer."""
    return config.load(PretrainConfig, RECIPE_SECTION.read().config)


def _tokenize(folder: Path, inputs: list[Path], _settings: Any) -> dict[str, Any]:
    """Tokenize each text into `folder` and return the counts for the manifest. The last input is the tokenizer."""
    from course_lib.pretrain.encode import tokenize

    *texts, tokenizer = inputs
    counts = {}
    for text in texts:
        report = tokenize([subword.text_file(text)], tokenizer, folder / text.name, default_workers(), append_eod=True)
        counts[text.name] = {"documents": report.documents, "tokens": report.tokens}
    return counts


def with_products(settings: PretrainConfig, *inputs: Path) -> PretrainConfig:
    """Return the settings with the token files and the tokenizer of `inputs`, of which the tokenizer is the last."""
    if settings.data.input or settings.data.tokenizer:
        raise UsageError("data.input, data.tokenizer: only one is set; give both, or neither for the profile's own")
    *tokens, tokenizer = inputs
    prefixes = tuple(path.with_suffix("") for folder in tokens for path in sorted(folder.glob("*.idx")))
    data = replace(settings.data, input=prefixes, tokenizer=tokenizer)
    return replace(settings, data=data)


def gpt2_run(inputs: list[Path], settings: PretrainConfig) -> "Gpt2":
    """Return the run that trains GPT2, on the products TOKENS and the tokenizer."""
    from course_lib.pretrain.gpt2 import Gpt2

    return Gpt2(with_products(settings, *inputs))


def train_gpt2(folder: Path, inputs: list[Path], settings: PretrainConfig) -> dict[str, Any]:
    """Train a model, add model/ and the run log to a product folder, and return the product's counts."""
    from course_lib.training import run_product
    from course_lib.training.loop import silent, train

    run = run_product.kept(gpt2_run(inputs, settings), f"{RUNS}/{GPT2.run_name()}")
    trained = train(run, resume=True, on_message=silent)
    run.export(folder / MODEL)
    return run_product.counts(trained, folder)


TOKENS = Product(
    "pretrain/tokens",
    build=_tokenize,
    settings={"append_eod": True},
    inputs=lambda: (*subword.texts(), subword.tokenizer()),
    code=ENCODING,
)
GPT2 = Product(
    "pretrain/gpt2",
    build=train_gpt2,
    settings=recipe_settings,
    inputs=lambda: (TOKENS, subword.tokenizer()),
    code=TRAINING,
    identity=PretrainConfig.content,
    trains=lambda inputs, settings: gpt2_run(inputs, settings).title(),
)


def products() -> list[Product]:
    """Return the chapter's products in build order."""
    return [TOKENS, GPT2]


def run_settings() -> PretrainConfig:
    """Return the settings of the run that trains GPT2, with the profile's token files and tokenizer."""
    return with_products(recipe_settings(), TOKENS.path(), subword.tokenizer().path())

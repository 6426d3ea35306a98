"""Products of chapter 4: the token files, and the model trained on them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.errors import UsageError
from course_lib.japanese.products import LINES
from course_lib.parallel import default_workers
from course_lib.paths import root
from course_lib.pretrain.config import PretrainConfig, RecipeConfig
from course_lib.product import Product

TEXTS = ("japanese/wikipedia", "japanese/webtext")
TOKENIZER = "subword/bpe"
# Holds one folder per run. Runs are kept, so that an interrupted training can resume and the checkpoints of earlier
# settings are not lost.
RUNS = "pretrain/runs"


def products() -> list[Product]:
    """The products of chapter 4.

    pretrain/tokens holds a .bin and an .idx file for each text. pretrain/gpt2 holds the model and the log of its run.
    """
    recipe = config.section("pretrain.recipe", RecipeConfig)
    settings = config.load(PretrainConfig, recipe.config)
    return [
        Product(
            "pretrain/tokens",
            _tokenize,
            {"append_eod": True},
            (*TEXTS, TOKENIZER),
            ("pretrain/encode.py", "pretrain/indexed.py"),
        ),
        Product("pretrain/gpt2", partial(trained, settings), settings, ("pretrain/tokens", TOKENIZER)),
    ]


def _tokenize(folder: Path, inputs: list[Path]) -> dict[str, Any]:
    """Tokenizes each text into `folder`; returns its counts for the manifest. The last input is the tokenizer."""
    from course_lib.pretrain.encode import tokenize

    *texts, tokenizer = inputs
    counts = {}
    for text in texts:
        report = tokenize([text / LINES], tokenizer, folder / text.name, default_workers(), append_eod=True)
        counts[text.name] = {"documents": report.documents, "tokens": report.tokens}
    return counts


def with_products(settings: PretrainConfig, *inputs: Path) -> PretrainConfig:
    """The settings, with data.input and data.tokenizer set to products of the profile if both are unset.

    Args:
        settings: the settings of a run.
        inputs: one or more folders of token files, then a tokenizer folder.

    Raises UsageError if only one of the two keys is set.
    """
    if settings.data.input or settings.data.tokenizer:
        raise UsageError("data.input, data.tokenizer: only one is set; give both, or neither for the profile's own")
    *tokens, tokenizer = inputs
    prefixes = tuple(path.with_suffix("") for folder in tokens for path in sorted(folder.glob("*.idx")))
    data = replace(settings.data, input=prefixes, tokenizer=tokenizer)
    return replace(settings, data=data)


def trained(settings: PretrainConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    """Trains a model and fills a product's folder with model/ and the log of the run.

    Args:
        settings: the settings of the run.
        folder: the product's folder.
        inputs: the inputs of with_products.

    Returns the entries for the product's manifest.
    """
    from course_lib.pretrain.export import export
    from course_lib.pretrain.launch import pretrain
    from course_lib.training import run_product

    def write_model(run: Path) -> dict[str, Any]:
        export(run, folder / "model")
        return {}

    settings = with_products(settings, *inputs)
    assert settings.data.tokenizer
    files = (
        *(prefix.with_suffix(".bin") for prefix in settings.data.input),
        settings.data.tokenizer / "tokenizer.json",
    )
    values = run_product.content(settings, ("data.input", "data.tokenizer"))
    return run_product.fill(
        folder, settings, run_product.run_folder(root() / RUNS, values, files), pretrain, write_model
    )

"""Products of chapter 4: the tokens, and the model trained on them."""

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
RUNS = "pretrain/runs"  # a folder per run, kept: an interrupted training goes on, and a changed setting costs no checkpoint


def products() -> list[Product]:
    """tokens (a .bin/.idx for each text), gpt2 (a Hugging Face folder with the run's log)."""
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
    from course_lib.pretrain.encode import tokenize

    *texts, tokenizer = inputs
    counts = {}
    for text in texts:
        report = tokenize([text / LINES], tokenizer, folder / text.name, default_workers(), append_eod=True)
        counts[text.name] = {"documents": report.documents, "tokens": report.tokens}
    return counts


def with_products(settings: PretrainConfig, *inputs: Path) -> PretrainConfig:
    """The settings, with the profile's own products where none are named: folders of token files, and last a tokenizer."""
    if settings.data.input or settings.data.tokenizer:
        raise UsageError("data.input, data.tokenizer: only one is set; give both, or neither for the profile's own")
    *tokens, tokenizer = inputs
    found = tuple(path.with_suffix("") for folder in tokens for path in sorted(folder.glob("*.idx")))
    data = replace(settings.data, input=found, tokenizer=tokenizer)
    return replace(settings, data=data)


def trained(settings: PretrainConfig, folder: Path, inputs: list[Path]) -> dict[str, Any]:
    """Fills a product's folder: model/, and the log of the run that trained it on `inputs`, those of with_products."""
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

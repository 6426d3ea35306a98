"""Finding and copying the tokenizer files in a model folder; model_folder.py loads them."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import read_json

CONFIG, JSON = "tokenizer_config.json", "tokenizer.json"
# Names that transformers gives to a sentencepiece model, the most frequent ones first.
MODELS = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "spm.model", "sentencepiece.model")
NAMES = (
    "preparation.json", JSON, CONFIG, "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "vocab.txt", *MODELS, "chat_template.jinja",
)  # fmt: skip

VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.tiktoken", "tekken.json")


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder holds a tokenizer's vocabulary."""
    return any(path.is_file() for name in VOCABULARIES for path in folder.glob(name))


def require_tokenizer(folder: Path) -> None:
    """Raise CourseError if a folder holds no tokenizer."""
    if not has_tokenizer(folder):
        raise CourseError(
            f"{folder}: holds no tokenizer (tokenizer.json, tokenizer.model or another vocabulary); "
            "copy the model's tokenizer files into it"
        )


def sentencepiece_model(folder: Path) -> Path | None:
    """Return the sentencepiece model of a folder, or None: Llama 3 calls a file of another format tokenizer.model."""
    from sentencepiece import SentencePieceProcessor

    for path in (folder / name for name in MODELS):
        if path.is_file():
            try:
                SentencePieceProcessor(model_file=str(path))
            # The Python binding raises different exceptions for different kinds of damage.
            except Exception:
                continue
            return path
    return None


def copy_present(source: Path, target: Path, names: Iterable[str]) -> None:
    """Copy the named files from the `source` folder to the `target` folder, skipping any that do not exist."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def copy_tokenizer(source: Path, target: Path, positions: int) -> None:
    """Copy the tokenizer files, and set model_max_length to `positions` [tokens]."""
    copy_present(source, target, NAMES)
    path = target / CONFIG
    content = read_json(source / CONFIG) if path.is_file() else {}
    content["model_max_length"] = positions
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")

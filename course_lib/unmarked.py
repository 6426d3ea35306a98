"""What earlier versions of the course wrote into product folders, without the file that lists it (files.FILE_LIST).

Such a folder is known by one of four files, by what is in that file, and by the names of all others.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The tokenizer of a course model, and that of a GPTSAN; a model in shards; its card.
TOKENIZER = (
    r"(preparation|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|emoji)\.json"
    r"|merges\.txt|vocab\.txt|(tokenizer|spiece)\.model|tokenizer\.vocab|chat_template\.jinja"
)
MODEL = (
    rf"{TOKENIZER}|(generation_)?config\.json|model(-\d{{5}}-of-\d{{5}})?\.safetensors|model\.safetensors\.index\.json"
)
# What is converted: FasterTransformer's folder, a model with its prefixes, CTranslate2's and peft's files.
CONVERTED = (
    rf"conversion\.json|{MODEL}|prefixes/([^/]+\.safetensors)?|tokenizer/({TOKENIZER})?"
    r"|\d+-gpu/(config\.ini|model\.[^/]+\.bin)?|model\.bin|vocabulary\.(json|txt)"
    r"|adapter_config\.json|adapter_model\.safetensors"
)
EXAMPLES = r"encoding\.json|(x|y|i|document)\.npy"
REPOSITORY = r"manifest\.json|fastertransformer/(config\.pbtxt|1/((model\.py|\.keep))?)?"
CARD = "README.md"
# Keys of each product's manifest. Those of other programs may have outputs, too (esbuild.github.io/api/#metafile).
BUILT = {"settings", "inputs", "outputs"}
# A sentence of the model card.
OF_CARD = " parameters, trained from scratch on Japanese text."

# File that a kind of product is known by → the keys that it may have, and the names in the folder.
KINDS: dict[str, tuple[set[str], str]] = {
    "preparation.json": (
        {"segmented", "marked", "texts", "characters", "entries", "substrings", "single"},
        MODEL,
    ),
    "conversion.json": (
        {"source", "sha256_of_weights", "tensor_parallel", "dtype", "biases_divided_by", "not_in_the_format"}
        | {"corrected", "notes", "format", "model_name", "settings", "biases_multiplied_by", "tasks", "quantization"}
        | {"checkpoint", "variables", "left_out", "parameters", "rows", "vocabulary", "tensor_ranks", "iteration"}
        | {"task", "base", "shape"},
        CONVERTED,
    ),
    "encoding.json": (
        {"num_context", "d_spout", "seed", "documents", "examples", "tokens", "largest_id", "classes", "tokenizer"},
        EXAMPLES,
    ),
    "manifest.json": (set(), REPOSITORY),
}


def files_of(folder: Path) -> Callable[[str], bool]:
    """Return a function that says whether the course wrote a file of a folder without a marker file.

    It is given the file's relative path; those of folders end with /.
    """
    manifest = json_of(folder / "manifest.json")
    if manifest.keys() >= BUILT and isinstance(manifest["outputs"], dict):
        return _with_folders({"manifest.json", *manifest["outputs"]}).__contains__
    patterns = [names for known_by, (keys, names) in KINDS.items() if _is_ours(folder / known_by, keys)]
    if OF_CARD in _text(folder / CARD):
        patterns = [*patterns, re.escape(CARD)] if patterns else []
    return lambda name: any(re.fullmatch(pattern, name) for pattern in patterns)


def json_of(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if there is no such file, or something else in it."""
    content = _parsed(path)
    return content if isinstance(content, dict) else {}


def _is_ours(path: Path, keys: set[str]) -> bool:
    content = _parsed(path)
    return isinstance(content, dict) and content.keys() <= keys


def _parsed(path: Path) -> Any:
    """Return the value in a JSON file, or None."""
    try:
        return json.loads(_text(path))
    # not JSON, or brackets nested too deeply
    except (ValueError, RecursionError):
        return None


def _text(path: Path) -> str:
    """Return the text of a file; an empty one if there is none, or if it is a pipe or device, which may never end."""
    try:
        return path.read_text(encoding="utf8") if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def _with_folders(names: set[str]) -> set[str]:
    """Return the names with those of the folders that they are in."""
    return names | {f"{above}/" for name in names for above in Path(name).parents}

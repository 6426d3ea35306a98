"""The tokenizer that comes along with a model: which files make it up, and copying them. Loading them is other modules' work."""

import json
import shutil
from pathlib import Path

NAMES = (
    "preparation.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "vocab.txt", "tokenizer.model", "spiece.model", "chat_template.jinja",
)  # fmt: skip


def copy_tokenizer(source: Path, target: Path, positions: int) -> None:
    """Copies the tokenizer of one folder into another, and notes the model's longest text [tokens] in it."""
    for name in NAMES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    path = target / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf8")) if path.is_file() else {}
    content["model_max_length"] = positions
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")

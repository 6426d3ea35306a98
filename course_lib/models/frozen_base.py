"""Loader for the base model in prefix tuning: a frozen GPT-2 or GPT-NeoX model from a Hugging Face folder.

Every prefix file records the digest of the base's weights, because a prefix works only with those it was trained on.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course_lib.checkpoints import model_folder, weight_files
from course_lib.errors import CourseError
from course_lib.models.families import BY_MODEL_TYPE, Family


def read_config(folder: Path) -> Any:
    """Return the configuration of a GPT-2 or GPT-NeoX folder."""
    config = model_folder.read_config(folder)
    if config.model_type not in BY_MODEL_TYPE:
        raise CourseError(f"{folder}: a {config.model_type} model; allowed: {', '.join(BY_MODEL_TYPE)}")
    sizes = layers, heads, hidden = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    if not all(isinstance(size, int) and size > 0 for size in sizes) or hidden % heads:
        raise CourseError(f"{folder}: {layers!r} layers, {heads!r} heads and hidden size {hidden!r} do not fit")
    return config


def load(folder: Path, dtype: torch.dtype | str = "auto", attention: str | None = None) -> Any:
    """Load a GPT-2 or GPT-NeoX model, frozen and in eval mode; dtype "auto" keeps the stored dtype."""
    read_config(folder)
    return model_folder.load_model(folder, dtype, attention).requires_grad_(False)


def weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights that transformers reads from a folder, under the names that it writes.

    Without constants of old versions, and without an output layer that is the embedding. If config.json ties the two,
    transformers 5 decides by the file (`PreTrainedModel.tie_weights`): an output layer that differs from the embedding
    is used as it is, and an output layer without an embedding is both.
    """
    config = read_config(folder)
    family = BY_MODEL_TYPE[config.model_type]
    head = _find(folder, family, family.head) if config.tie_word_embeddings else None
    embedding = None if head is None else _find(folder, family, family.embedding)
    is_alone = head is not None and embedding is None
    is_copy = head is not None and embedding is not None and _are_equal(embedding, head)
    # Their pages are released.
    del head, embedding
    for name, tensor in _usual(folder, family):
        if name == family.head and is_alone:
            yield family.embedding, tensor
        elif name != family.head or not is_copy:
            yield name, tensor


def _find(folder: Path, family: Family, wanted: str) -> Tensor | None:
    """Return one weight, or None if the files have none of this name."""
    return next((tensor for name, tensor in _usual(folder, family) if name == wanted), None)


def _usual(folder: Path, family: Family) -> Iterator[tuple[str, Tensor]]:
    """Yield all weights under their usual names, with the tensors of one file mapped at a time."""
    for path in weight_files.files(folder):
        for name, tensor in weight_files.weights(path).items():
            if not weight_files.is_leftover(name):
                yield _usual_name(name, family), tensor


def _are_equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two weights have the same shape and numbers, in whichever dtype."""
    if one.dtype != other.dtype:
        one, other = one.float(), other.float()
    return torch.equal(one, other)


def _usual_name(name: str, family: Family) -> str:
    """Return the name that transformers writes for a weight: a file may have `module.` before it, or no prefix."""
    name = name.removeprefix("module.")
    if name in (family.head, "lm_head.weight"):
        return family.head
    prefix = family.embedding.partition(".")[0] + "."
    return name if name.startswith(prefix) else prefix + name


def digest(folder: Path, recorded: str = "") -> str:
    """Return the SHA-256 digest of all weights as hex: name, dtype, shape and bytes of each, sorted by name.

    It does not depend on how the weights are split into files, nor on what a file repeats or holds beside them.
    `recorded` is returned if it is the digest of the file's tensors as they are, which earlier versions recorded.
    """
    found = _digest(dict(weights(folder)))
    if recorded not in ("", found):
        files = map(weight_files.weights, weight_files.files(folder))
        if recorded == _digest({name: tensor for file in files for name, tensor in file.items()}):
            return recorded
    return found


def _digest(tensors: dict[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()

"""Bit-for-bit conversion of a TensorFlow checkpoint from the original GPTSAN release to a Hugging Face folder.

The importer infers the model sizes from the shapes of the variables. Adam moments and the global step are left out.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.torch_dtypes import torch_name
from course_lib.errors import CourseError, one_line
from course_lib.files import atomic_folder, read_json, require_other, write_json
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.shape import SIZES
from course_lib.gptsan.tensor_bundle import TensorBundle
from course_lib.gptsan.tf_names import differences, infer_shape, variables
from course_lib.notebooks.progress import progress

PARAMETERS = "parameters.json"
# Name in the checkpoint folder → name in the new folder.
COPIED = {name: name for name in ("emoji.json", PARAMETERS)} | {"ja-swe36k.txt": "vocab.txt", "vocab.txt": "vocab.txt"}
# Key in parameters.json → key in config.json.
ORIGINAL_KEYS = {
    "num_contexts": "max_position_embeddings", "num_switch_layers": "num_switch_layers",
    "num_ext_layers": "num_ext_layers", "num_hidden": "d_model", "num_header": "num_heads",
    "num_experts": "num_experts", "num_spout": "d_spout", "num_vocabulary": "vocab_size",
}  # fmt: skip
NOT_WEIGHTS = re.compile(r".*/adam_[mv]|global_step|_CHECKPOINTABLE_OBJECT_GRAPH")


def import_tf(source: Path, folder: Path) -> dict[str, Any]:
    """Convert a TensorFlow checkpoint to a Hugging Face folder, and return what is written to its conversion.json.

    The vocabulary, the emoji table and `parameters.json` are copied if they are in the same folder as the checkpoint.
    """
    require_other(source, folder)
    bundle = TensorBundle(source)
    shapes = {name: entry.shape for name, entry in bundle.entries.items() if not NOT_WEIGHTS.fullmatch(name)}
    try:
        shape = infer_shape(shapes)
        wanted = variables(shape)
        wrong = differences(shapes, {variable.tf: variable.tf_shape(shape) for variable in wanted})
    except (LookupError, ValueError) as error:
        wrong = one_line(error)
    if wrong:
        raise CourseError(f"{bundle.prefix}: not the variables of a GPTSAN: {wrong}")
    dtype = torch_name(bundle.read("model/wte").dtype)

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        with progress(sum(bundle.entries[variable.tf].size for variable in wanted), "B", "import") as bar:
            for variable in wanted:
                yield from zip(variable.hf_names(shape), variable.to_hf(bundle.read(variable.tf)), strict=True)
                bar.update(bundle.entries[variable.tf].size)

    with atomic_folder(folder) as temporary:
        numbers = weight_files.write(tensors(), temporary, weight_files.SHARD)
        GPTSanConfig(
            **asdict(shape),
            # The special tokens are the last entries in the vocabulary.
            separator_token_id=shape.vocab_size - 2,
            pad_token_id=shape.vocab_size - 5,
            eos_token_id=shape.vocab_size - 1,
            dtype=dtype,
            architectures=["GPTSanForCausalLM"],
        ).save_pretrained(temporary)
        for name, copied in COPIED.items():
            if (original := bundle.prefix.with_name(name)).is_file():
                shutil.copyfile(original, temporary / copied)
        report = {
            # The folder may be shared, so it must not contain paths from this machine.
            "folder": folder.name,
            "checkpoint": bundle.prefix.name,
            "dtype": dtype,
            **{name: getattr(shape, name) for name in SIZES},
            "variables": len(wanted),
            # Adam moments and the global step.
            "left_out": len(bundle.entries) - len(wanted),
            # The head bias is a buffer, not a parameter, so it is not counted.
            "parameters": numbers - shape.vocab_size,
            "files": sorted(path.name for path in temporary.iterdir()),
        }
        write_json(temporary / "conversion.json", report)
    return report


def read_parameters(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `train_params` and `model_params` from a `parameters.json` file, empty where it has none."""
    content = read_json(path) if path.is_file() else {}
    train, model = content.get("train_params", {}), content.get("model_params", {})
    if not isinstance(train, dict) or not isinstance(model, dict):
        raise CourseError(f"{path}: train_params and model_params have to be objects")
    return train, model


def original_params(shape: Any) -> dict[str, int]:
    """Return the sizes of a model under the keys used in the original `parameters.json`."""
    return {key: getattr(shape, name) for key, name in ORIGINAL_KEYS.items()}

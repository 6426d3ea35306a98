"""Bit-for-bit conversion of a TensorFlow checkpoint from the original GPTSAN release to a Hugging Face folder.

The importer infers the model sizes from the shapes of the variables. If the checkpoint folder contains a
`parameters.json`, the sizes in it must match. Adam moments and the global step are not imported. tensor_bundle.py reads
the checkpoint format; tf_names.py maps names and axes. This module neither builds nor trains a model.
"""

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
from course_lib.gptsan.shape import SIZES, GPTSANShape
from course_lib.gptsan.tensor_bundle import DTYPES, TensorBundle
from course_lib.gptsan.tf_names import differences, infer_shape, variables
from course_lib.notebooks.progress import progress

PARAMETERS = "parameters.json"
# Name in the new folder → possible names in the checkpoint folder.
COPIED = {"vocab.txt": ("vocab.txt", "ja-swe36k.txt"), "emoji.json": ("emoji.json",), PARAMETERS: (PARAMETERS,)}
# Key in parameters.json → key in config.json.
ORIGINAL_KEYS = {
    "num_contexts": "max_position_embeddings", "num_switch_layers": "num_switch_layers",
    "num_ext_layers": "num_ext_layers", "num_hidden": "d_model", "num_header": "num_heads",
    "num_experts": "num_experts", "num_spout": "d_spout", "num_vocabulary": "vocab_size",
}  # fmt: skip
NOT_WEIGHTS = ("global_step", "_CHECKPOINTABLE_OBJECT_GRAPH")
MOMENTS = ("/adam_m", "/adam_v")


def import_tf(source: Path, folder: Path) -> dict[str, Any]:
    """Convert a TensorFlow checkpoint to a Hugging Face folder, and return what is written to its conversion.json.

    The vocabulary, the emoji table and `parameters.json` are copied if they are in the same folder as the checkpoint.

    Args:
        source: Folder of the checkpoint, path prefix of its files, or its index file.
        folder: Folder to write.
    """
    require_other(source, folder)
    bundle = TensorBundle(source)
    shape = _shape_of(bundle)
    wanted = variables(shape)
    for variable in wanted:
        bundle.check(variable.tf)
    dtype = torch_name(DTYPES[bundle.entries["model/wte"].dtype][1])

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        with progress(sum(bundle.entries[variable.tf].size for variable in wanted), "B", "import") as bar:
            for variable in wanted:
                yield from zip(variable.hf_names(shape), variable.to_hf(bundle.read(variable.tf)), strict=True)
                bar.update(bundle.entries[variable.tf].size)

    with atomic_folder(folder) as temporary:
        numbers = weight_files.write(tensors(), temporary, weight_files.SHARD)
        hf_config(shape, dtype).save_pretrained(temporary)
        for name, candidates in COPIED.items():
            paths = [bundle.prefix.with_name(candidate) for candidate in candidates]
            if original := next((path for path in paths if path.is_file()), None):
                shutil.copyfile(original, temporary / name)
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


def _shape_of(bundle: TensorBundle) -> GPTSANShape:
    """Return the shape of the model in a checkpoint, after checking that its variables are those of such a model."""
    shapes = {
        name: bundle.shape(name) for name in bundle.entries if name not in NOT_WEIGHTS and not name.endswith(MOMENTS)
    }
    try:
        shape = infer_shape(shapes)
    except KeyError as error:
        raise CourseError(f"{bundle.prefix}: not the variables of a GPTSAN: missing {error.args[0]}") from None
    except ValueError as error:
        raise CourseError(f"{bundle.prefix}: not the variables of a GPTSAN: {one_line(error)}") from None
    if wrong := differences(shapes, {variable.tf: variable.tf_shape(shape) for variable in variables(shape)}):
        raise CourseError(f"{bundle.prefix}: not the variables of a GPTSAN: {wrong}")
    path = bundle.prefix.with_name(PARAMETERS)
    _, params = read_parameters(path)
    for key, size in original_params(shape).items():
        # A size of 0 is not compared: the file may give a spout width even if the model was trained without a spout.
        if size and params.get(key, size) != size:
            raise CourseError(f"{path}: model_params.{key} is {params[key]}, but the variables say {size}")
    return shape


def hf_config(shape: GPTSANShape, dtype: str) -> GPTSanConfig:
    """Return the configuration for a model of this shape, with the original routing (`overflow="zero"`)."""
    return GPTSanConfig(
        **asdict(shape),
        overflow="zero",
        # The special tokens are the last entries in the vocabulary.
        separator_token_id=shape.vocab_size - 2,
        pad_token_id=shape.vocab_size - 5,
        eos_token_id=shape.vocab_size - 1,
        dtype=dtype,
        architectures=["GPTSanForCausalLM"],
    )


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

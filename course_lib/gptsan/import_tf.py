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
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.parameters import differences, infer_shape, variables
from course_lib.gptsan.tensor_bundle import TensorBundle
from course_lib.notebooks.progress import progress

# Name in the checkpoint folder → name in the new folder.
COPIED = {"emoji.json": "emoji.json", "ja-swe36k.txt": "vocab.txt", "vocab.txt": "vocab.txt"}
NOT_WEIGHTS = re.compile(r".*/adam_[mv]|global_step|_CHECKPOINTABLE_OBJECT_GRAPH")


def import_tf(source: Path, folder: Path) -> dict[str, Any]:
    """Convert a TensorFlow checkpoint to a Hugging Face folder, and return what is written to its conversion.json.

    The vocabulary and the emoji table are copied if they are in the same folder as the checkpoint.
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
                value = bundle.read(variable.tf)
                weight_files.require_float(bundle.prefix, variable.tf, value)
                weight_files.require_finite(bundle.prefix, variable.tf, value)
                yield from zip(variable.hf_names(shape), variable.to_hf(value), strict=True)
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
            "checkpoint": bundle.prefix.name,
            "dtype": dtype,
            "variables": len(wanted),
            # Adam moments and the global step.
            "left_out": len(bundle.entries) - len(wanted),
            # The head bias is a buffer, not a parameter, so it is not counted.
            "parameters": numbers - shape.vocab_size,
        }
        write_json(temporary / "conversion.json", report)
    return report

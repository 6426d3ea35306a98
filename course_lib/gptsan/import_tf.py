"""The original's release, a TensorFlow checkpoint → a Hugging Face folder, bit for bit.

Sizes come from the variables' shapes; `parameters.json`, where it lies beside them, has to agree. Adam's moments and the step are left out.
Reading the format is tensor_bundle.py's work, names and order of axes are tf_names.py's. Nothing is trained or built here.
"""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.files import atomic_folder, require_other
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.shards import read_json, write_json, write_tensors
from course_lib.gptsan.tensor_bundle import DTYPES, TensorBundle
from course_lib.gptsan.tf_names import Dims, differences, infer_dims, variables
from course_lib.progress import progress

PARAMETERS = "parameters.json"
TOKENIZER = {"vocab.txt": ("vocab.txt", "ja-swe36k.txt"), "emoji.json": ("emoji.json",)}  # our name: those it may have
NOT_WEIGHTS = ("global_step", "_CHECKPOINTABLE_OBJECT_GRAPH")
MOMENTS = ("/adam_m", "/adam_v")


@dataclass(frozen=True)
class ImportReport:
    """What was imported."""

    folder: Path
    checkpoint: Path  # prefix of its files
    dims: Dims
    dtype: str
    variables: int
    left_out: int  # moments and step
    parameters: int
    files: tuple[str, ...]

    def summary(self) -> str:
        """One line."""
        d = self.dims
        return (
            f"{d.switch_layers} switch + {d.ext_layers} extra layers × {d.hidden}, {d.experts} experts, spout {d.spout}: "
            f"{self.parameters:,} parameters in {self.dtype} from {self.variables} variables, {self.left_out} left out → {self.folder}"
        )


def import_tf(source: Path, folder: Path) -> ImportReport:
    """Writes the Hugging Face folder `folder` from a TensorFlow checkpoint: a folder, a prefix or an index file.

    Takes vocabulary and emoji table along if they lie beside it. Raises CourseError naming what is missing, unknown or damaged;
    `folder` then is as it was, else it appears whole.
    """
    require_other(source, folder)
    bundle = TensorBundle(source)
    shapes = {
        name: entry.shape
        for name, entry in bundle.entries.items()
        if name not in NOT_WEIGHTS and not name.endswith(MOMENTS)
    }
    try:
        dims = infer_dims(shapes)
    except KeyError as error:
        raise CourseError(f"{bundle.prefix}: not the variables of a GPTSAN: missing {error.args[0]}") from None
    wanted = variables(dims)
    if wrong := differences(shapes, {variable.tf: variable.tf_shape for variable in wanted}):
        raise CourseError(f"{bundle.prefix}: not the variables of a GPTSAN: {wrong}")
    _compare(bundle.prefix.with_name(PARAMETERS), dims)
    for variable in wanted:
        bundle.check(variable.tf)
    dtype = str(DTYPES[bundle.entries["model/wte"].dtype][1]).removeprefix("torch.")

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        with progress(sum(bundle.entries[variable.tf].size for variable in wanted), "B", "import") as bar:
            for variable in wanted:
                yield from zip(variable.hf, variable.to_hf(bundle.read(variable.tf)), strict=True)
                bar.update(bundle.entries[variable.tf].size)

    with atomic_folder(folder) as place:
        numbers = write_tensors(tensors(), place)
        hf_config(dims, dtype).save_pretrained(place)
        for name, candidates in TOKENIZER.items():
            lying = [bundle.prefix.with_name(candidate) for candidate in candidates]
            if found := next((path for path in lying if path.is_file()), None):
                shutil.copyfile(found, place / name)
        if bundle.prefix.with_name(PARAMETERS).is_file():
            shutil.copyfile(bundle.prefix.with_name(PARAMETERS), place / PARAMETERS)
        report = ImportReport(
            folder, bundle.prefix, dims, dtype, len(wanted), len(bundle.entries) - len(wanted),
            numbers - dims.vocabulary, tuple(sorted(path.name for path in place.iterdir())),  # the head's bias is a buffer
        )  # fmt: skip
        write_json(place / "conversion.json", asdict(report))
    return report


def hf_config(dims: Dims, dtype: str) -> GPTSanConfig:
    """The configuration of a model of this size; routing is the original's."""
    return GPTSanConfig(
        vocab_size=dims.vocabulary,
        max_position_embeddings=dims.contexts,
        d_model=dims.hidden,
        d_ff=dims.ffn,
        d_ext=dims.ext_ffn,
        d_spout=dims.spout,
        num_switch_layers=dims.switch_layers,
        num_ext_layers=dims.ext_layers,
        num_heads=dims.heads,
        num_experts=dims.experts,
        overflow="zero",
        separator_token_id=dims.vocabulary - 2,  # the special tokens are the vocabulary's last
        pad_token_id=dims.vocabulary - 5,
        eos_token_id=dims.vocabulary - 1,
        dtype=dtype,
        architectures=["GPTSanForCausalLM"],
    )


def _compare(path: Path, dims: Dims) -> None:
    """Raises CourseError where a `parameters.json` says another size than the variables."""
    _, said = read_parameters(path)
    for key, size in original_params(dims).items():
        if size and said.get(key, size) != size:  # 0: trained without a spout, whatever its width would be
            raise CourseError(
                f"{path}: model_params.{key} is {said[key]}, but the variables of the checkpoint say {size}"
            )


def read_parameters(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """`train_params` and `model_params` of a `parameters.json`, empty where there is none. Raises CourseError for another content."""
    content = read_json(path) if path.is_file() else {}
    train, model = content.get("train_params", {}), content.get("model_params", {})
    if not isinstance(train, dict) or not isinstance(model, dict):
        raise CourseError(f"{path}: train_params and model_params have to be objects")
    return train, model


def original_params(dims: Dims) -> dict[str, int]:
    """The sizes under their names in the original's `parameters.json`."""
    return {
        "num_contexts": dims.contexts,
        "num_switch_layers": dims.switch_layers,
        "num_ext_layers": dims.ext_layers,
        "num_hidden": dims.hidden,
        "num_header": dims.heads,
        "num_experts": dims.experts,
        "num_spout": dims.spout,
        "num_vocabulary": dims.vocabulary,
    }

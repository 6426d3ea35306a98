"""Extra stage for a GPTSAN model: new layers on top, which are trained while all layers below stay frozen.

Two files for training are written to the model folder:

    ignore-params.json    names of the frozen parameters
    train.yaml            settings for `course gptsan train -c`, those of run_training.py in tanreinama/GPTSAN

New: the layers, a table of extra positions if the input model has none, and the output projection of the spout, because
its shape depends on the number of layers. Frozen: all parameters of the input model except the spout. These include the
extra positions of a finished stage: they are added below the extra layers, so training them would send gradients
through all of these layers. To train more parameters, remove their names from ignore-params.json.
"""

from collections.abc import Iterator
from pathlib import Path

import torch

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.tokenizer_files import NAMES, copy_present
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.gptsan.hf_config import GPTSanConfig, read_config, read_weights
from course_lib.gptsan.parameters import differences, hf_shapes, parameter_elements
from course_lib.gptsan.shape import LAYERS, SPOUT_OUT
from course_lib.gptsan.swe import FILES
from course_lib.notebooks.progress import progress

IGNORE = "ignore-params.json"
# `${here}` is the folder of the YAML file, so that a copy of the folder trains the copy.
SETTINGS = """\
kind: gptsan
extends: gptsan-2.8b-extra14.yaml
model: {checkpoint: "${here}", ignore: "${here}/ignore-params.json"}
data: {num_context: null}
spout: {mode: none}
engine: {output_dir: "${here}-trained"}
"""
# Standard deviation for new kernels and biases.
STD = 0.02


def add_extra_stage(source: Path, folder: Path, layers: int, seed: int = 0) -> dict[str, int]:
    """Write a copy of a GPTSAN model with new layers on top; return counts of layers, parameters and frozen tensors."""
    if folder.exists():
        raise UsageError(f"-o {folder}: exists already; allowed: a new name")
    require_other(source, folder)
    config = read_config(source)
    if not 1 <= layers <= LAYERS - config.num_ext_layers:
        raise UsageError(f"--layers: {layers} is not allowed: 1 to {LAYERS - config.num_ext_layers}")
    weights = read_weights(source)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    if wrong := differences(shapes, hf_shapes(config.shape)):
        raise CourseError(f"{source}: weights and config.json do not match: {wrong}")
    config.num_ext_layers += layers
    config.architectures = ["GPTSanForCausalLM"]
    wanted, elements = hf_shapes(config.shape), parameter_elements(config.shape)
    new = wanted.keys() - (weights.keys() - {SPOUT_OUT})
    frozen = [name for name in elements if name not in new and not name.startswith("model.spout.")]

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        rng = torch.Generator().manual_seed(seed)
        dtype = weights["model.embed_tokens.weight"].dtype
        with progress(len(wanted), "tensor", "extra stage") as bar:
            for name, shape in wanted.items():
                yield name, initial(name, shape, rng, config).to(dtype) if name in new else weights[name].contiguous()
                bar.update()

    with atomic_folder(folder) as temporary:
        weight_files.write(tensors(), temporary, weight_files.SHARD)
        config.save_pretrained(temporary)
        copy_present(source, temporary, (*NAMES, *FILES))
        write_json(temporary / IGNORE, frozen)
        (temporary / "train.yaml").write_text(SETTINGS, encoding="utf8")
    made = sum(elements[name] for name in new)
    return {"layers": config.num_layers, "kept": sum(elements.values()) - made, "new": made, "frozen": len(frozen)}


def initial(name: str, shape: tuple[int, ...], rng: torch.Generator, config: GPTSanConfig) -> torch.Tensor:
    """Return a new tensor: ones, zeros or Normal(0, std²), chosen by name as in the tanreinama/GPTSAN converter.

    The spout's output projection has the model's spout_init_std if that is larger than 0.02.
    """
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(("norm.bias", "extra_position_embeddings.weight")):
        return torch.zeros(shape)
    return torch.randn(shape, generator=rng) * (max(STD, config.spout_init_std) if name == SPOUT_OUT else STD)

"""Extra stage for a GPTSAN model: new layers on top, which are trained while all layers below stay frozen.

Three files for training are written to the model folder:

    ignore-params.json    names of the frozen parameters
    parameters.json       settings in the format of the original code, tanreinama/GPTSAN
    train.yaml            the same settings for `course gptsan train -c`

New: the layers, a table of extra positions if the input model has none, and the output projection of the spout, because
its shape depends on the number of layers. Frozen: all parameters of the input model except the spout. These include the
extra positions of a finished stage: they are added below the extra layers, so training them would send gradients
through all of these layers. To train more parameters, remove their names from ignore-params.json.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.tokenizer_files import NAMES, copy_present
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.configuration import GPTSanConfig, read_config, read_weights
from course_lib.gptsan.import_tf import PARAMETERS, original_params, read_parameters
from course_lib.gptsan.shape import LAYERS, SPOUT_OUT
from course_lib.gptsan.swe import FILES
from course_lib.gptsan.tf_names import differences, hf_shapes, parameters
from course_lib.notebooks.progress import progress
from course_lib.settings import yaml_values
from course_lib.settings.config import build

IGNORE, TRAIN = "ignore-params.json", "train.yaml"
# Standard deviation for new kernels and biases.
STD = 0.02
# Defaults for keys missing from the input's parameters.json, from tools/train_params.json in the original code.
TRAIN_PARAMS: dict[str, Any] = {
    "batch_size": 16, "base_lr": 1e-4, "num_warmup_steps": 2000, "max_to_keep_save": 12, "checkpoint_per_hours": 1,
    "checkpoint_per_steps": 10000,
}  # fmt: skip


def add_extra_stage(source: Path, folder: Path, layers: int, seed: int = 0) -> dict[str, int]:
    """Write a copy of a GPTSAN model with new layers on top; return counts of layers, parameters and frozen tensors."""
    if folder.exists():
        raise UsageError(f"-o {folder}: exists already; allowed: a new name")
    require_other(source, folder)
    config = read_config(source)
    if not 1 <= layers <= LAYERS - config.num_ext_layers:
        raise UsageError(f"--layers: {layers} is not allowed: 1 to {LAYERS - config.num_ext_layers}")
    held = read_weights(source)
    if wrong := differences({name: tuple(weight.shape) for name, weight in held.items()}, hf_shapes(config)):
        raise CourseError(f"{source}: weights and config.json do not match: {wrong}")
    config.num_ext_layers += layers
    config.architectures = ["GPTSanForCausalLM"]
    wanted, elements = hf_shapes(config), parameters(config)
    new = wanted.keys() - (held.keys() - {SPOUT_OUT})
    frozen = [name for name in elements if name not in new and not name.startswith("model.spout.")]

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        rng = torch.Generator().manual_seed(seed)
        dtype = held["model.embed_tokens.weight"].dtype
        with progress(len(wanted), "tensor", "extra stage") as bar:
            for name, shape in wanted.items():
                yield name, initial(name, shape, rng, config).to(dtype) if name in new else held[name].contiguous()
                bar.update()

    train, model = read_parameters(source / PARAMETERS)
    settings = {
        "train_params": TRAIN_PARAMS | train | {"output_dir": folder.name},
        "model_params": {"num_pallarelizm": 1} | model | original_params(config),
    }
    twin = training_yaml(settings, seed)
    with atomic_folder(folder) as temporary:
        weight_files.write(tensors(), temporary, weight_files.SHARD)
        config.save_pretrained(temporary)
        copy_present(source, temporary, (*NAMES, *FILES))
        write_json(temporary / IGNORE, frozen)
        write_json(temporary / PARAMETERS, settings)
        (temporary / TRAIN).write_text(twin, encoding="utf8")
    made = sum(elements[name] for name in new)
    return {
        "layers": config.num_layers,
        "kept": sum(elements.values()) - made,
        "new": made,
        "frozen": len(frozen),
    }


def initial(name: str, shape: tuple[int, ...], rng: torch.Generator, config: GPTSanConfig) -> torch.Tensor:
    """Return a new tensor: ones, zeros or Normal(0, std²), chosen by name as in the tanreinama/GPTSAN converter.

    The spout's output projection has the model's spout_init_std if that is larger than 0.02.
    """
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(("norm.bias", "extra_position_embeddings.weight")):
        return torch.zeros(shape)
    return torch.randn(shape, generator=rng) * (max(STD, config.spout_init_std) if name == SPOUT_OUT else STD)


def training_yaml(settings: dict[str, Any], seed: int = 0) -> str:
    """Return the settings in `parameters.json` as YAML for `course gptsan train -c`.

    `${here}` is the folder of the YAML file, so that a copy of the folder trains the copy. Values that are hard-coded
    in tanreinama/GPTSAN are added. After the warm-up, the learning rate stays at its maximum, as it does in the
    original code for the first (1 / base_lr)² steps.
    """
    train = settings["train_params"]
    rate, warmup = train["base_lr"], train["num_warmup_steps"]
    content = {
        "model": {"checkpoint": "${here}", "ignore": f"${{here}}/{IGNORE}"},
        "spout": {"mode": "none"},
        "batch": {"global_size": train["batch_size"], "micro_size": 1},
        "optimizer": {
            "weight_decay": 0.01,
            "grad_clip": 0.0,
            "lr": {"max": rate, "min": rate, "warmup_steps": warmup},
        },
        "precision": {"dtype": "bf16"},
        "engine": {
            "output_dir": "${here}-trained",
            "max_steps": 10 * warmup,
            "save_steps": train["checkpoint_per_steps"],
            "keep_checkpoints": train["max_to_keep_save"],
            "seed": seed,
        },
    }
    build(GptsanConfig, content, where=PARAMETERS)
    return yaml_values.dump(content)

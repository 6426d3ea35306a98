"""Extra stage for a GPTSAN model: new layers on top, which are trained while all layers below stay frozen.

Three files for training are written to the model folder:

    ignore-params.json    names of the frozen parameters
    parameters.json       settings in the format of the original code, tanreinama/GPTSAN
    train.yaml            the same settings for `course gptsan train -c`

New parameters:

- The new layers: kernels and biases from Normal(0, 0.02²), norm weights 1, norm biases 0.
- The table of extra positions, all zeros, if the input model does not have one.
- The output projection of the spout, because its shape depends on the number of layers. Its weights come from Normal(0,
  std²), where std is 0.02 or the model's spout_init_std, whichever is larger.

Frozen parameters: all parameters in the input model except the spout. The head bias is a buffer and is never trained.
Extra layers and extra positions in the input model are also frozen, because they belong to a finished stage. The extra
positions are added below the extra layers, so training them would send gradients through all of these layers. To train
more parameters, remove their names from ignore-params.json.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.tokenizer_files import NAMES, copy_present
from course_lib.checkpoints.weight_files import Weight
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other, write_json
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.folder import read_config, read_weights, tensors_of
from course_lib.gptsan.import_tf import PARAMETERS, original_params, read_parameters
from course_lib.gptsan.shape import LAYERS, SPOUT_OUT
from course_lib.gptsan.swe import FILES
from course_lib.gptsan.tf_names import differences
from course_lib.notebooks.progress import progress
from course_lib.settings.config import build

IGNORE, TRAIN = "ignore-params.json", "train.yaml"
# Standard deviation for new kernels and biases.
STD = 0.02
# Defaults for keys missing from the input's parameters.json, from tools/train_params.json in the original code.
TRAIN_PARAMS: dict[str, Any] = {
    "batch_size": 16,
    "base_lr": 1e-4,
    "num_warmup_steps": 2000,
    "max_to_keep_save": 12,
    "checkpoint_per_hours": 1,
    "checkpoint_per_steps": 10000,
}


def add_extra_stage(source: Path, folder: Path, layers: int, seed: int = 0) -> dict[str, int]:
    """Write a copy of a GPTSAN model with new layers on top; return counts of layers, parameters and frozen tensors."""
    if folder.exists():
        raise UsageError(f"-o {folder}: exists already; allowed: a new name")
    require_other(source, folder)
    config = read_config(source)
    if not 1 <= layers <= LAYERS - config.num_ext_layers:
        raise UsageError(f"--layers: {layers} is not allowed: 1 to {LAYERS - config.num_ext_layers}")
    held = read_weights(source)
    if wrong := differences(_shapes(held), _shapes(tensors_of(config)[0])):
        raise CourseError(f"{source}: weights and config.json do not match: {wrong}")
    config.num_ext_layers += layers
    config.architectures = ["GPTSanForCausalLM"]
    wanted, parameters = tensors_of(config)
    new = wanted.keys() - (held.keys() - {SPOUT_OUT})
    frozen = [name for name in parameters if name not in new and not name.startswith("model.spout.")]

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        rng = torch.Generator().manual_seed(seed)
        dtype = held["model.embed_tokens.weight"].dtype
        with progress(len(wanted), "tensor", "extra stage") as bar:
            for name, like in wanted.items():
                yield name, initial(name, like, rng, config).to(dtype) if name in new else held[name].contiguous()
                bar.update()

    settings = original_settings(source, folder, config)
    twin = training_yaml(settings, seed)
    with atomic_folder(folder) as temporary:
        weight_files.write(tensors(), temporary, weight_files.SHARD)
        config.save_pretrained(temporary)
        copy_present(source, temporary, (*NAMES, *FILES))
        write_json(temporary / IGNORE, frozen)
        write_json(temporary / PARAMETERS, settings)
        (temporary / TRAIN).write_text(twin, encoding="utf8")
    made = sum(wanted[name].numel() for name in new)
    kept = sum(wanted[name].numel() for name in parameters) - made
    return {"layers": config.num_layers, "kept": kept, "new": made, "frozen": len(frozen)}


def _shapes(tensors: Mapping[str, torch.Tensor | Weight]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in tensors.items()}


def initial(name: str, like: torch.Tensor, rng: torch.Generator, config: GPTSanConfig) -> torch.Tensor:
    """Return a new tensor: ones, zeros or Normal(0, std²), chosen by name as in the tanreinama/GPTSAN converter."""
    if name.endswith("norm.weight"):
        return torch.ones(like.shape)
    if name.endswith(("norm.bias", "extra_position_embeddings.weight")):
        return torch.zeros(like.shape)
    return torch.randn(like.shape, generator=rng) * (max(STD, config.spout_init_std) if name == SPOUT_OUT else STD)


def original_settings(source: Path, folder: Path, config: GPTSanConfig) -> dict[str, Any]:
    """Return the contents of `parameters.json` for the new model, in the format of the tanreinama/GPTSAN converter.

    Training settings come from the input's `parameters.json`; missing ones come from TRAIN_PARAMS.
    """
    train, model = read_parameters(source / PARAMETERS)
    return {
        "train_params": TRAIN_PARAMS | train | {"output_dir": folder.name},
        "model_params": {"num_pallarelizm": 1} | model | original_params(config),
    }


def training_yaml(settings: dict[str, Any], seed: int = 0) -> str:
    """Return the settings in `parameters.json` as YAML for `course gptsan train -c`.

    `${here}` is the folder of the YAML file, so that a copy of the folder trains the copy.

    Values that are hard-coded in tanreinama/GPTSAN are added. After the warm-up, the learning rate stays at its
    maximum, as it does in the original code for the first (1 / base_lr)² steps.
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
    return str(OmegaConf.to_yaml(OmegaConf.create(content)))

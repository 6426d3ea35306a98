"""Adds an extra stage to a GPTSAN: new layers on top, which are trained while everything below stays as it was.

Beside the model it writes what training needs: `ignore-params.json`, the names that stay frozen; `parameters.json`, the settings as the
original's tools wrote them; `train.yaml`, the same for `course gptsan train -c`. It does not train.

New are the layers (kernels and biases Normal(0, 0.02²), norms 1 and 0), the table of extra positions (zeros) where the input had none, and
the spout's output projection (Normal(0, 0.02²), or the model's spout_init_std if that is larger), whose shape depends on the depth. Frozen is everything that comes from the input but the
spout; the head's bias is a buffer, which nothing trains. That holds for extra layers and extra positions of the input too: they belong to
a finished stage, and as the extra positions are added below its layers, training them would send gradients through all of these. A user
who wants otherwise shortens the list.
"""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from course_lib.checkpoints.tokenizer_files import NAMES as TOKENIZER
from course_lib.config import build
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, require_other
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.import_tf import PARAMETERS, original_params, read_parameters
from course_lib.gptsan.shape import ShapeConfig
from course_lib.gptsan.shards import read_json, read_tensors, write_json, write_tensors
from course_lib.gptsan.tf_names import SPOUT_OUT, Dims, differences
from course_lib.progress import progress

IGNORE, TRAIN = "ignore-params.json", "train.yaml"
HEAD = "lm_head.weight"  # tied to the embedding: written once, under the embedding's name
STD = 0.02  # of new kernels and biases
TRAIN_PARAMS: dict[str, Any] = {  # tools/train_params.json of the original, for inputs that say nothing
    "batch_size": 16,
    "base_lr": 1e-4,
    "num_warmup_steps": 2000,
    "max_to_keep_save": 12,
    "checkpoint_per_hours": 1,
    "checkpoint_per_steps": 10000,
}


@dataclass(frozen=True)
class StageReport:
    """What was added."""

    folder: Path
    layers: int  # new ones
    total_layers: int
    kept: int  # numbers in parameters that come from the input
    new: int  # numbers in parameters that were made
    frozen: int  # names in ignore-params.json

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.layers} extra layer{'s' * (self.layers > 1)} → {self.total_layers} layers: {self.kept:,} parameters kept, "
            f"{self.new:,} new, {self.frozen:,} tensors frozen by {IGNORE} → {self.folder}"
        )


def add_extra_stage(source: Path, folder: Path, layers: int, seed: int = 0) -> StageReport:
    """Writes the model of the Hugging Face folder `source` with `layers` more layers to `folder`, which appears whole or not at all.

    Raises UsageError for a number of layers below 1 and for a `folder` that exists, CourseError for a source that is no GPTSAN, not whole
    or damaged. The source is only read.
    """
    if layers < 1:
        raise UsageError(f"--layers: {layers} is not allowed: at least 1")
    if folder.exists():
        raise UsageError(f"-o {folder}: exists already; allowed: a new name")
    require_other(source, folder)
    config = read_config(source)
    held = {name.replace(".sqout.", ".spout."): value for name, value in read_tensors(source).items() if name != HEAD}
    if wrong := differences(_shapes(held), _shapes(tensors_of(config)[0])):
        raise CourseError(f"{source}: weights and config.json do not belong together: {wrong}")
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
                std = max(STD, config.spout_init_std) if name == SPOUT_OUT else STD
                yield name, initial(name, like.shape, rng, std).to(dtype) if name in new else held[name]
                bar.update()

    settings = original_settings(source, folder, config)
    twin = training_yaml(folder, settings, seed)
    with atomic_folder(folder) as place:
        write_tensors(tensors(), place)
        config.save_pretrained(place)
        for name in (*TOKENIZER, "emoji.json"):
            if (source / name).is_file():
                shutil.copyfile(source / name, place / name)
        write_json(place / IGNORE, frozen)
        write_json(place / PARAMETERS, settings)
        (place / TRAIN).write_text(twin, encoding="utf8")
    made = sum(wanted[name].numel() for name in new)
    kept = sum(wanted[name].numel() for name in parameters) - made
    return StageReport(folder, layers, config.num_layers, kept, made, len(frozen))


def read_config(source: Path) -> GPTSanConfig:
    """The configuration of a GPTSAN folder. Raises CourseError for another one."""
    path = source / "config.json"
    if not path.is_file():
        raise CourseError(f"{source}: no GPTSAN folder: no config.json in it")
    content = read_json(path)
    if content.get("model_type") != GPTSanConfig.model_type:
        raise CourseError(
            f"{path}: no GPTSAN: model_type {content.get('model_type')!r}, expected {GPTSanConfig.model_type!r}"
        )
    sizes = [name for name, default in asdict(ShapeConfig()).items() if isinstance(default, int)]
    try:
        build(ShapeConfig, {name: content[name] for name in sizes if name in content}, where=str(path))
    except UsageError as error:  # what would be a wrong setting of ours is bad data here
        raise CourseError(str(error)) from error
    try:
        config: GPTSanConfig = GPTSanConfig.from_dict(content)
    except Exception as error:  # transformers raises what its validators do
        raise CourseError(f"{path}: not a configuration of GPTSAN: {' '.join(str(error).split())[:300]}") from error
    if not config.tie_word_embeddings:
        raise CourseError(f"{path}: tie_word_embeddings is false, but the head of a GPTSAN is its embedding")
    return config


def tensors_of(config: GPTSanConfig) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The tensors of a model by name, without their bytes, the tied head apart; and which of them are parameters."""
    from course_lib.gptsan.model import GPTSanForCausalLM

    with torch.device("meta"):
        model = GPTSanForCausalLM(config)
    held = {name: value for name, value in model.state_dict().items() if name != HEAD}
    return held, [name for name, _ in model.named_parameters() if name in held]


def _shapes(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in tensors.items()}


def initial(name: str, shape: tuple[int, ...], rng: torch.Generator, std: float = STD) -> torch.Tensor:
    """A new tensor as the original's converter makes it."""
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(("norm.bias", "extra_position_embeddings.weight")):
        return torch.zeros(shape)
    return torch.randn(shape, generator=rng) * std


def original_settings(source: Path, folder: Path, config: GPTSanConfig) -> dict[str, Any]:
    """The content of `parameters.json` as the original's converter writes it: the input's, or its template's, for the new model."""
    train, model = read_parameters(source / PARAMETERS)
    dims = Dims(
        config.vocab_size, config.max_position_embeddings, config.d_model, config.num_heads, config.num_experts,
        config.d_ff, config.d_ext, config.d_spout, config.num_switch_layers, config.num_ext_layers,
    )  # fmt: skip
    return {
        "train_params": TRAIN_PARAMS | train | {"output_dir": folder.name},
        "model_params": {"num_pallarelizm": 1} | model | original_params(dims),
    }


def training_yaml(folder: Path, settings: dict[str, Any], seed: int = 0) -> str:
    """The settings of `parameters.json` for `course gptsan train -c`, with what the original fixes in its code.

    The rate stays at its highest after the warm-up, as the original's does for its first (1 / base_lr)² steps. Raises UsageError for values
    that training would refuse.
    """
    said = settings["train_params"]
    content = {
        "model": {"checkpoint": str(folder), "ignore": str(folder / IGNORE)},
        "spout": {"mode": "none"},
        "batch": {"global_size": said["batch_size"], "micro_size": 1},
        "optimizer": {
            "weight_decay": 0.01,
            "grad_clip": 0.0,
            "lr": {"max": said["base_lr"], "min": said["base_lr"], "warmup_steps": said["num_warmup_steps"]},
        },
        "precision": {"dtype": "bf16"},
        "engine": {
            "output_dir": f"{folder}-trained",
            "max_steps": 10 * said["num_warmup_steps"],
            "save_steps": said["checkpoint_per_steps"],
            "keep_checkpoints": said["max_to_keep_save"],
            "seed": seed,
        },
    }
    build(GptsanConfig, content, where=PARAMETERS)
    return str(OmegaConf.to_yaml(OmegaConf.create(content)))

"""Settings for `course prefix train`: the frozen model, the prefix and the texts. configs/README.md lists every key."""

from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from course_lib.checkpoints import aozora
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.models.config import ModelConfig as BaseShape
from course_lib.models.families import BY_MODEL_TYPE
from course_lib.pretrain import memory
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.settings.config import STRICT, Section, setting
from course_lib.training.memory import Parameter, Sizes, parameters_of
from course_lib.training.settings import RunConfig

# Prefix format: the course's own safetensors file, rinna's torch file, or a peft folder (prefix tuning or cartridge).
Form = Literal["course", "rinna", "peft", "cartridge"]
# Name of the prefix file in a run folder and in a product.
FILE = "prefix.safetensors"
# Ways to train a task that the notebook compares, with the learning rates that it tries on a small base.
Way = Literal["embedding", "LoRA", "full"]
RATES: dict[Way, tuple[float, ...]] = {
    "embedding": (1e-1, 3e-1),
    "LoRA": (3e-3, 1e-2),
    "full": (3e-3, 1e-2),
}


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The base model and the prefix to train for it."""

    base: Path | None = setting(None, "folder of the base, a GPT-2 or GPT-NeoX, or aozora; unset: the profile's base")
    shape: str = setting("gpt-neox-3.6b.yaml", "settings file of a run; the memory planner uses its model without base")
    method: Literal["mlp", "embedding", "full"] = setting(
        "mlp",
        "what is trained: mlp: an embedding and an MLP that give the prefix; embedding: the prefix; full: the base",
    )
    length: int = setting(10, "length of the prefix [positions]", ge=1, le=1 << 16)
    input_dim: int = setting(10, "mlp: width of the embedding", ge=1, le=1 << 16)
    hidden_dim: int = setting(10, "mlp: width of the hidden layer", ge=1, le=1 << 16)
    dropout: float = setting(0.0, "mlp: dropout rate of the prefix", ge=0, lt=1)
    warm_start_steps: int = setting(
        200, "steps that fit a new prefix to the base's key/value cache of the ids 0, 1, …; 0: none", ge=0
    )
    warm_start_text: str | None = setting(
        None, "text to whose first `length` tokens a new prefix is fitted; unset: the ids 0, 1, …"
    )
    warm_start_lr: float = setting(1e-4, "learning rate of the warm start", gt=0, le=1)
    recompute: Literal["none", "full"] = setting("none", "what the backward pass recomputes: nothing, or each block")

    def base_shape(self) -> BaseShape:
        """Return the model settings of `base` or, if it is unset, those in the run settings file `shape`."""
        if self.base is None:
            return config.load(PretrainConfig, self.shape).model
        path = aozora.named(self.base) / "config.json"
        content = read_json(path)
        if (family := content.get("model_type")) not in BY_MODEL_TYPE:
            raise CourseError(f"{path}: a {family} model cannot take a prefix; allowed: {', '.join(BY_MODEL_TYPE)}")
        return BY_MODEL_TYPE[family].from_hf(content, path)

    def encoder_parameters(self, width: int) -> tuple[Parameter, ...]:
        """Return the parameters of the encoder of a prefix with `width` values per position."""
        import torch

        from course_lib.prefix.encoder import PrefixEncoder

        with torch.device("meta"):
            encoder = PrefixEncoder(
                self.length, width, self.input_dim, self.hidden_dim, reparameterize=self.method == "mlp"
            )
        return parameters_of(encoder)


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """The texts, and how they are turned into samples."""

    input: Path | None = setting(None, 'JSON lines: "text", or "prompt" and "target"; unset: the course\'s own')
    form: Literal["lines", "samples", "pairs"] = setting(
        "lines",
        "lines: the lines of a text, each with the suffix, packed up to max_length; "
        "samples: each text unchanged; pairs: prompt and target, with a loss on the target only",
    )
    suffix: str = setting(" 😃", "lines: text added at the end of each line")
    max_length: int = setting(64, "lines: longest sample, but for longer lines; planner: of any form [tokens]", ge=1)
    too_long: Literal["skip", "cut"] = setting(
        "skip",
        "samples with more tokens than the base has positions for: left out, or cut at the end and without the "
        "end-of-text token; the log has their number",
    )
    dev_size: int | float = setting(0.1, "held-out samples, taken from the end of the file; a share if below 1")
    begin: Literal["both", "with", "without"] = setting(
        "both",
        "rows made of a sample without prompt: with the begin-of-text token, without it, or both; a batch counts rows",
    )

    @model_validator(mode="after")
    def _sizes(self) -> "DataConfig":
        if self.dev_size < 0 or (isinstance(self.dev_size, float) and self.dev_size >= 1):
            raise ValueError(f"data.dev_size: {self.dev_size} is not allowed: a number of samples, or a share below 1")
        return self


@dataclass(frozen=True, config=STRICT)
class PrefixConfig(RunConfig):
    """All settings for a run."""

    kind: Literal["prefix"] = setting("prefix", "kind of run that the file describes: that of `course prefix train`")
    task_name: str = setting(
        "task",
        "name of the task in the prefix file and on the server: letters, digits, . _ + -, up to 100 bytes",
        pattern=r"^\w[\w.+-]*$",
        max_length=100,
    )
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)

    @override
    def identity(self) -> dict[str, Any]:
        return self.chosen(
            model=["method", "length", "input_dim", "hidden_dim", "dropout"],
            optimizer=[each.name for each in fields(self.optimizer) if each.name != "fused"],
            data=[each.name for each in fields(self.data) if each.name != "input"],
            precision=["dtype"],
            engine=["seed"],
        )

    @override
    def content(self) -> dict[str, Any]:
        # The prefix has its warm start before the first step, and its name in its file.
        start = self.chosen(model=["warm_start_steps", "warm_start_lr", "warm_start_text"])
        return super().content() | start | {"task_name": self.task_name}

    @override
    def sizes(self, autocast: bool = False) -> Sizes:
        model, length = self.model, self.data.max_length
        micro_batch, dtype = self.batch.micro_size, self.precision.dtype
        shape = replace(model.base_shape(), recompute=model.recompute, attention="sdpa")
        if model.method == "full":
            return memory.sizes(shape, micro_batch, min(length, shape.max_position_embeddings), dtype, autocast)
        encoder = model.encoder_parameters(2 * shape.num_layers * shape.hidden_size)
        return memory.frozen_sizes(shape, encoder, model.length, micro_batch, length, dtype, autocast)


@dataclass(frozen=True, config=STRICT)
class QuickConfig:
    """Settings for the short runs of the notebook, in one process."""

    steps: int = setting(100, "steps of a run", ge=1)
    dtype: Literal["fp32", "bf16"] = setting("fp32", "number format of the base in these runs")
    rates: dict[Way, tuple[float, ...]] = setting(RATES, "learning rates to try for each compared way of training")


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """Profile settings for this chapter."""

    checkpoint: str | None = setting(None, "existing base: a folder, or a name on the Hub; unset: chapter 4's GPT-2")
    tasks: tuple[str, ...] = setting(
        ("prefix-tiny.yaml", "prefix-tiny-title.yaml"),
        "runs that each train one prefix: files under course_lib/configs, or paths",
    )
    quick: QuickConfig = field(default_factory=QuickConfig)


# The chapter's section of a profile.
RECIPE_SECTION = Section("prefix.recipe", RecipeConfig)

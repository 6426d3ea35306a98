"""Settings of `course prefix train`: which frozen model, which prefix, which texts.

The sections batch, optimizer, precision, zero, engine and launch are chapter 4's; configs/README.md lists every key.
"""

from dataclasses import field
from pathlib import Path
from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from course_lib.config import STRICT, setting
from course_lib.models.memory import Sizes
from course_lib.prefix.memory import prefix_sizes
from course_lib.training.settings import RunConfig


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The base, and what is trained in front of it."""

    base: Path | None = setting(None, "folder of the GPT-2 or GPT-NeoX that stays as it is; unset: the profile's own")
    shape: str = setting(
        "gpt-neox-3.6b.yaml",
        "run of chapter 4 whose model the planner takes while base is unset: a file under course_lib/configs, or a path",
    )
    method: Literal["mlp", "embedding", "full"] = setting(
        "mlp",
        "what is trained: mlp: a small embedding and an MLP that give the prefix; embedding: the prefix itself; full: no prefix, the whole base",
    )
    length: int = setting(10, "positions of the prefix", ge=1, le=1 << 16)
    input_dim: int = setting(10, "mlp: width of the embedding", ge=1, le=1 << 16)
    hidden_dim: int = setting(10, "mlp: width inside", ge=1, le=1 << 16)
    dropout: float = setting(0.0, "mlp: dropout of the prefix", ge=0, lt=1)
    warm_start_steps: int = setting(
        200, "steps that fit a new prefix to the base's own cache of the ids 0, 1, …; 0: it begins at random", ge=0
    )
    warm_start_lr: float = setting(1e-4, "rate of these steps", gt=0, le=1)
    attention: Literal["eager", "sdpa"] = setting("sdpa", "attention kernel; sdpa takes the fused one of the device")
    recompute: Literal["none", "full"] = setting(
        "none", "what the backward pass computes again instead of keeping: nothing, or each block"
    )


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """Which texts, and what becomes a sample."""

    input: Path | None = setting(
        None, 'JSON lines with "text", for pairs with "prompt" and "target"; unset: a task of the course'
    )
    form: Literal["lines", "samples", "pairs"] = setting(
        "lines",
        "lines: the lines of a text, each with the suffix, packed up to max_length; samples: each text as it is; pairs: the loss is on the target",
    )
    suffix: str = setting(" 😃", "lines: what ends each line")
    max_length: int = setting(
        64,
        "lines: longest sample, begin and end not counted [tokens]; a longer line is one by itself; for the planner in any form",
        ge=1,
    )
    train_size: int | float | None = setting(
        None, "samples for training, from the start of the file; a share if below 1; unset: all that is not held out"
    )
    dev_size: int | float = setting(0.1, "samples held out, from its end; a share if below 1")
    begin: Literal["both", "with", "without"] = setting(
        "both",
        "a sample without prompt is a row with the begin-of-text token, one without, or both; batch sizes count rows",
    )

    @model_validator(mode="after")
    def _sizes(self) -> "DataConfig":
        for name, size in (("train_size", self.train_size), ("dev_size", self.dev_size)):
            if size is not None and (size < 0 or (isinstance(size, float) and size >= 1)):
                raise ValueError(f"data.{name}: {size} is not allowed: a number of samples, or a share below 1")
        if self.train_size == 0:
            raise ValueError("data.train_size: 0 is not allowed: nothing would be trained")
        return self


@dataclass(frozen=True, config=STRICT)
class PrefixConfig(RunConfig):
    """A whole run."""

    task_name: str = setting(
        "task",
        "name of the task in the prefix file and on the server: letters, digits, . _ + -, up to 100 bytes",
        pattern=r"^\w[\w.+-]*$",
        max_length=100,
    )
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)

    @override
    def sizes(self) -> Sizes:
        return prefix_sizes(self)


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """What a profile says of this chapter."""

    checkpoint: str | None = setting(
        None, "a ready base: a folder, or a name on the Hugging Face Hub; unset: one is trained, chapter 4's way"
    )
    base: str = setting("gpt-neox-tiny.yaml", "run that trains the base: a file under course_lib/configs, or a path")
    tasks: tuple[str, ...] = setting(
        ("prefix-tiny.yaml", "prefix-tiny-pairs.yaml"), "runs that train a prefix each: likewise"
    )

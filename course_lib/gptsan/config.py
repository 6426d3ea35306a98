"""Settings of `course gptsan train`: a GPTSAN from scratch, or from a checkpoint of which a part stays frozen.

The sections batch, optimizer, precision, zero, engine and launch are chapter 4's; configs/README.md lists every key.
"""

from dataclasses import field
from pathlib import Path
from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from course_lib.config import STRICT, setting
from course_lib.gptsan.freeze import BASE
from course_lib.gptsan.memory import gptsan_sizes
from course_lib.gptsan.shape import ShapeConfig
from course_lib.models.memory import Sizes
from course_lib.training.settings import RunConfig


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """What is trained, and what of it stays."""

    checkpoint: Path | None = setting(
        None, "folder of the GPTSAN to train; unset: a new one of model.shape, from scratch"
    )
    shape: ShapeConfig = field(default_factory=ShapeConfig)
    ignore: Literal["base"] | Path | None = setting(
        None,
        "what stays frozen: a JSON list of parameter names (ignore-params.json of add-extra-stage), or `base`: all but extra layers, extra "
        "positions and spout; unset: everything is trained",
    )
    attention: Literal["eager", "sdpa"] = setting("sdpa", "attention kernel; sdpa takes the fused one of the device")
    recompute: Literal["none", "full"] = setting(
        "none", "what the backward pass computes again instead of keeping: nothing, or each layer"
    )


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """Which examples."""

    input: Path | None = setting(None, "folder of encoded examples (`course gptsan encode`)")
    tokenizer: Path | None = setting(None, "tokenizer folder; unset: the one in model.checkpoint")
    num_context: int | None = setting(
        None, "length of an example [tokens], for the planner; unset: that of the examples, else all positions", ge=1
    )
    held_out: float = setting(0.05, "share of the examples, of each class, that is kept for evaluation", ge=0, lt=1)
    reader_workers: int = setting(0, "processes that read batches ahead, per rank; 0 = the rank itself", ge=0, le=64)


@dataclass(frozen=True, config=STRICT)
class SpoutConfig:
    """What the spout is fed with."""

    mode: Literal["none", "uniform", "onehot", "half_onehot"] = setting(
        "none",
        "none: no spout, its weights stay; uniform: noise from [0, 1); onehot: the example's class modulo the width; half_onehot: the class in "
        "the first half, noise in the second",
    )


@dataclass(frozen=True, config=STRICT)
class LossConfig:
    """What is added to the cross-entropy in training. The defaults are the original's."""

    z_loss: float = setting(1e-4, "factor of the mean of (log Z)², the logits' log-partition squared", ge=0, le=1)
    router_balance: float = setting(1e-2, "factor of the routers' balance loss, summed over layers", ge=0, le=1)
    router_z: float = setting(0.0, "factor of the routers' z-loss, summed over layers", ge=0, le=1)
    router_jitter: float = setting(0.01, "the router's input is multiplied by 1 ± this", ge=0, lt=1)


@dataclass(frozen=True, config=STRICT)
class GptsanConfig(RunConfig):
    """A whole run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    spout: SpoutConfig = field(default_factory=SpoutConfig)
    loss: LossConfig = field(default_factory=LossConfig)

    @model_validator(mode="after")
    def _together(self) -> "GptsanConfig":
        if self.model.ignore and not self.model.checkpoint and self.model.ignore != BASE:
            raise ValueError(
                f"model.ignore: {self.model.ignore} is not allowed without model.checkpoint: a new model has nothing to keep"
            )
        return self

    @override
    def sizes(self) -> Sizes:
        return gptsan_sizes(self)


@dataclass(frozen=True, config=STRICT)
class VocabularyConfig:
    """The vocabulary of a base that is trained from scratch."""

    size: int = setting(4000, "entries, of which 388 are special tokens, bytes and ASCII", ge=1, le=1_000_000)


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """What a profile says of this chapter."""

    checkpoint: str | None = setting(
        None, "a ready base: a folder, or a name on the Hugging Face Hub; unset: one is trained on the corpus"
    )
    base: str = setting("gptsan-tiny.yaml", "run that trains the base: a file under course_lib/configs, or a path")
    extra_layers: int = setting(1, "layers of the extra stage", ge=1, le=1024)
    extra: str = setting("gptsan-tiny-extra.yaml", "run that trains the extra stage on the classes")

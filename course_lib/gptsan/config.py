"""Settings for `course gptsan train`, which trains a new model or continues from a partly frozen checkpoint.

configs/README.md lists every key, including those in the sections shared with chapter 4.
"""

from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from course_lib.gptsan.freeze import BASE, frozen_names
from course_lib.gptsan.memory import MicroBatch, gptsan_sizes
from course_lib.gptsan.shape import GPTSANShape, read_shape
from course_lib.gptsan.tf_names import parameters
from course_lib.models.memory import Sizes
from course_lib.settings.config import STRICT, setting
from course_lib.training.settings import RunConfig


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """Settings for the model to train and its frozen parameters."""

    checkpoint: Path | None = setting(None, "folder of the GPTSAN to train; unset: a new GPTSAN of model.shape")
    shape: GPTSANShape = field(default_factory=GPTSANShape)
    ignore: Literal["base"] | Path | None = setting(
        None,
        "parameters that stay frozen: a JSON list of names (ignore-params.json of add-extra-stage), or `base`: "
        "all but extra layers, extra positions and spout; unset: all parameters are trained",
    )
    attention: Literal["eager", "sdpa"] = setting("sdpa", "attention kernel; sdpa: the device's fused kernel")
    recompute: Literal["none", "full"] = setting(
        "none", "activations that the backward pass recomputes instead of storing: none, or those of each layer"
    )


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """Settings for the training examples."""

    input: Path | None = setting(None, "folder of encoded examples (`course gptsan encode`)")
    tokenizer: Path | None = setting(None, "tokenizer folder; unset: the one in model.checkpoint")
    num_context: int | None = setting(
        None,
        "example length for the memory planner [tokens]; unset: that of the examples, else the number of positions",
        ge=1,
    )
    held_out: float = setting(0.05, "held-out share of each class's documents, for evaluation", ge=0, lt=1)
    reader_workers: int = setting(0, "processes per rank that read batches ahead; 0 = the rank itself", ge=0, le=64)


@dataclass(frozen=True, config=STRICT)
class SpoutConfig:
    """Settings for the input to the spout."""

    mode: Literal["none", "uniform", "onehot", "half_onehot"] = setting(
        "none",
        "none: no spout, its weights stay frozen; uniform: noise from [0, 1); onehot: 1 at the example's class modulo "
        "the width; half_onehot: one-hot in the first half, noise in the second",
    )


@dataclass(frozen=True, config=STRICT)
class LossConfig:
    """Loss terms added to the cross-entropy in training, and router noise. The defaults match tanreinama/GPTSAN."""

    z_loss: float = setting(1e-4, "factor of the mean of (log Z)²; log Z: logsumexp of the logits", ge=0, le=1)
    router_balance: float = setting(1e-2, "factor of the routers' load-balancing loss, summed over layers", ge=0, le=1)
    router_z: float = setting(0.0, "factor of the routers' z-loss, summed over layers", ge=0, le=1)
    router_jitter: float = setting(
        0.01, "in training, the router's input is multiplied by uniform noise from 1 ± this", ge=0, lt=1
    )


@dataclass(frozen=True, config=STRICT)
class GptsanConfig(RunConfig):
    """Settings for a complete training run."""

    places: ClassVar[tuple[str, ...]] = (
        *RunConfig.places, "data.input", "data.tokenizer", "model.checkpoint", "model.ignore",
    )  # fmt: skip
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    spout: SpoutConfig = field(default_factory=SpoutConfig)
    loss: LossConfig = field(default_factory=LossConfig)

    @model_validator(mode="after")
    def _together(self) -> "GptsanConfig":
        if self.model.ignore and not self.model.checkpoint and self.model.ignore != BASE:
            raise ValueError(
                f"model.ignore: {self.model.ignore} is not allowed without model.checkpoint: "
                "a new model has no trained parameters to freeze"
            )
        return self

    @override
    def sizes(self) -> Sizes:
        model = self.model
        shape = read_shape(model.checkpoint) if model.checkpoint else model.shape
        batch = MicroBatch(
            samples=self.batch.micro_size,
            length=self._num_context() or shape.max_position_embeddings,
            dtype=self.precision.dtype,
            spout=self.spout.mode != "none",
            fused=model.attention == "sdpa",
            again=model.recompute == "full",
            jitter=self.loss.router_jitter > 0,
        )
        frozen = frozen_names(model.ignore, self.spout.mode, shape, list(parameters(shape)))
        return gptsan_sizes(shape, frozen, batch)

    def _num_context(self) -> int | None:
        """Return the example length [tokens]: data.num_context if set, else that of the encoded examples, else None."""
        if self.data.num_context or not self.data.input:
            return self.data.num_context
        from course_lib.gptsan.examples import Examples

        return int(Examples(self.data.input).report["num_context"])


@dataclass(frozen=True, config=STRICT)
class VocabularyConfig:
    """Settings for the vocabulary of a base model that is trained from scratch."""

    size: int = setting(4000, "number of entries, of which 388 are special tokens, bytes and ASCII", ge=1, le=1_000_000)
    character_coverage: float = setting(
        0.9995,
        "share of the corpus's characters, counted with repetitions, that get entries before any substring does",
        ge=0,
        le=1,
    )


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """Profile settings for this chapter."""

    checkpoint: str | None = setting(
        None, "trained base model: a folder, or a name on the Hugging Face Hub; unset: train one on the corpus"
    )
    base: str = setting(
        "gptsan-tiny.yaml", "settings file of the run that trains the base: in course_lib/configs, or a path"
    )
    extra_layers: int = setting(1, "number of layers of the extra stage", ge=1, le=1024)
    extra: str = setting("gptsan-tiny-extra.yaml", "settings file of the run that trains the extra stage")

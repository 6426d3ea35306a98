"""Settings for `course gptsan train`, `encode`, `vocabulary` and `generate`, and the profile's for this chapter.

configs/README.md lists every key, including those in the sections shared with chapter 4.
"""

from dataclasses import field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from course_lib.gptsan import memory
from course_lib.gptsan.freeze import BASE, frozen_names
from course_lib.gptsan.shape import GPTSanShape, read_shape
from course_lib.settings.config import STRICT, Section, setting
from course_lib.training.memory import Sizes
from course_lib.training.settings import RunConfig

# Inputs to the spout in generation, other than a class.
SPOUTS = ("none", "uniform", "zeros")


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """Settings for the model to train and its frozen parameters."""

    # The planner names it.
    attention: ClassVar[str] = "sdpa"
    checkpoint: Path | None = setting(None, "folder of the GPTSAN to train; unset: a new GPTSAN of model.shape")
    shape: GPTSanShape = field(default_factory=GPTSanShape)
    ignore: Literal["base"] | Path | None = setting(
        None,
        "parameters that stay frozen: a JSON list of names (ignore-params.json of add-extra-stage), or `base`: "
        "all but extra layers, extra positions and spout; unset: all parameters are trained",
    )
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


@dataclass(frozen=True, config=STRICT)
class SpoutConfig:
    """Settings for the input to the spout."""

    mode: Literal["none", "uniform", "onehot"] = setting(
        "none",
        "none: no spout, its weights stay frozen; uniform: noise from [0, 1); onehot: 1 at the example's class modulo "
        "the width",
    )


@dataclass(frozen=True, config=STRICT)
class LossConfig:
    """Loss terms added to the cross-entropy in training, and router noise. The defaults match tanreinama/GPTSAN."""

    z_loss: float = setting(1e-4, "factor of the mean of (log Z)²; log Z: logsumexp of the logits", ge=0, le=1)
    router_balance: float = setting(1e-2, "factor of the routers' load-balancing loss, summed over layers", ge=0, le=1)
    router_jitter: float = setting(
        0.01, "in training, the router's input is multiplied by uniform noise from 1 ± this", ge=0, lt=1
    )


@dataclass(frozen=True, config=STRICT)
class GPTSanRunConfig(RunConfig):
    """Settings for a complete training run."""

    kind: Literal["gptsan"] = setting("gptsan", "kind of run that the file describes: that of `course gptsan train`")
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    spout: SpoutConfig = field(default_factory=SpoutConfig)
    loss: LossConfig = field(default_factory=LossConfig)

    @model_validator(mode="after")
    def _together(self) -> "GPTSanRunConfig":
        if self.model.ignore and not self.model.checkpoint and self.model.ignore != BASE:
            raise ValueError(
                f"model.ignore: {self.model.ignore} is not allowed without model.checkpoint: "
                "a new model has no trained parameters to freeze"
            )
        return self

    @override
    def identity(self) -> dict[str, Any]:
        return self.chosen(
            model=["shape"],
            optimizer=[each.name for each in fields(self.optimizer) if each.name != "fused"],
            data=["held_out"],
            spout=["mode"],
            loss=[each.name for each in fields(self.loss)],
            precision=["dtype"],
            engine=["seed"],
        )

    @override
    def content(self) -> dict[str, Any]:
        # The names in a file are those of the product with the extra stage.
        return super().content() | {"model.ignore": self.model.ignore if self.model.ignore == BASE else None}

    @override
    def sizes(self, autocast: bool = False) -> Sizes:
        from course_lib.gptsan.examples import Examples

        shape = read_shape(self.model.checkpoint) if self.model.checkpoint else self.model.shape
        length = self.data.num_context
        if not length and self.data.input:
            length = Examples(self.data.input).report["num_context"]
        return memory.sizes(self, shape, length or shape.max_position_embeddings, autocast)

    def frozen(self, shape: GPTSanShape) -> set[str]:
        """Return the names of the frozen parameters in a model of this shape."""
        return frozen_names(self.model.ignore, self.spout.mode, shape)


@dataclass(frozen=True, config=STRICT)
class EncodeConfig:
    """Settings for `course gptsan encode`."""

    num_context: int = setting(1280, "length of an example [tokens]", ge=8, le=1 << 20)
    d_spout: int = setting(128, "width of the model's spout: classes are 0 to d_spout - 1", ge=1, le=1 << 20)
    seed: int = setting(0, "seed for the order of documents", ge=0)


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
class GenerateConfig:
    """Settings for `course gptsan generate`. The defaults match run_generate.py in tanreinama/GPTSAN."""

    spout: int | str = setting(
        "none",
        "none, uniform (noise from [0, 1) for each text), zeros, or a class number from 0; the model must have been "
        "trained with the same kind of spout input",
    )
    seed: int | None = setting(0, "seed of the random generator; unset: different texts in each call", ge=0, lt=1 << 32)
    num_generate: int = setting(1, "number of texts, sampled independently", ge=1, le=1024)
    max_new_tokens: int = setting(
        300, "maximum length of the continuation [tokens]; also limited by the model's positions", ge=1
    )
    top_k: int = setting(120, "sample from this number of most probable tokens; 0 = all", ge=0)
    temperature: float = setting(
        1.0, "the logits are divided by it; below 1: probable tokens become more probable", ge=0.01, le=1e6
    )
    greedy: bool = setting(False, "always choose the most probable token, without sampling")

    @model_validator(mode="after")
    def _together(self) -> "GenerateConfig":
        if self.spout not in SPOUTS and not str(self.spout).isdecimal():
            raise ValueError(
                f"spout: {self.spout!r} is not allowed; allowed: none, uniform, zeros, or a class number from 0"
            )
        if self.greedy and self.num_generate > 1 and self.spout != "uniform":
            raise ValueError(
                f"num_generate: {self.num_generate} is not allowed with greedy: all texts would be the same; "
                "allowed: 1, or spout uniform"
            )
        return self


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


# The chapter's sections of a profile.
RECIPE_SECTION = Section("gptsan.recipe", RecipeConfig)
VOCABULARY_SECTION = Section("gptsan.vocabulary", VocabularyConfig)
CORPUS_SECTION = Section("gptsan.corpus", EncodeConfig)
CLASSES_SECTION = Section("gptsan.classes", EncodeConfig)

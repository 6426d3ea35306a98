"""Settings of chapter 4: a run of pretraining, from the tiny ones to GPT-2 XL and a GPT-NeoX of 3.6B.

`configs/README.md` lists every key with unit and default, and which key of older configurations (FleetX, Megatron-DeepSpeed, DeepSpeed
JSON) it stands for. What follows from the number of ranks is worked out by `Batch.resolve`.
"""

from dataclasses import field
from pathlib import Path

from pydantic import model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from course_lib.config import STRICT, setting
from course_lib.models.config import ModelConfig
from course_lib.models.memory import Sizes, gpt_sizes
from course_lib.training.settings import RunConfig


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """Which tokens, in which portions."""

    input: tuple[Path, ...] = setting(
        (), "prefixes of .bin/.idx files (`course tokenize`); each is split by itself; unset: the profile's own"
    )
    tokenizer: Path | None = setting(None, "tokenizer folder the tokens were made with; unset: the profile's own")
    split: str = setting("949,50,1", "shares of train, validation and test, contiguous in file order")
    seq_length: int = setting(1024, "tokens per sample; at most model.max_position_embeddings", ge=1, le=1 << 20)
    train_tokens: int | None = setting(
        None, "length of training [tokens]; unset, with engine.max_steps and num_train_epochs: one epoch", ge=1
    )
    mask_loss_at_eod: bool = setting(False, "leave out the loss where the input token is the end of a document")
    reader_workers: int = setting(0, "processes that read batches ahead, per rank; 0 = the rank itself", ge=0, le=64)
    cache: Path | None = setting(None, "folder of the sample indices; unset: index-cache in the output folder")


@dataclass(frozen=True, config=STRICT)
class PretrainConfig(RunConfig):
    """A whole run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)

    @model_validator(mode="after")
    def _together(self) -> "PretrainConfig":
        if self.data.seq_length > self.model.max_position_embeddings:
            raise ValueError(
                f"data.seq_length: {self.data.seq_length} is not allowed: the model has "
                f"{self.model.max_position_embeddings} positions (model.max_position_embeddings)"
            )
        return self

    @override
    def lengths(self) -> dict[str, float | None]:
        return super().lengths() | {"data.train_tokens": self.data.train_tokens}

    @override
    def sizes(self) -> Sizes:
        return gpt_sizes(self.model, self.batch.micro_size, self.data.seq_length, self.precision.dtype)


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """What a profile says of this chapter."""

    config: str = setting("gpt2-tiny.yaml", "the run's settings: a file under course_lib/configs, or a path")

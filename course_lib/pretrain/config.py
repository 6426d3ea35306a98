"""Settings for a pretraining run (chapter 4). `configs/README.md` lists every key, and those of other trainers."""

from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import override

from course_lib.models.config import ModelConfig
from course_lib.pretrain import memory
from course_lib.settings.config import STRICT, Section, setting
from course_lib.training.memory import Sizes
from course_lib.training.settings import RunConfig


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """The token files for a run, how they are split, and the sample length."""

    input: tuple[Path, ...] = setting(
        (), "prefixes of .bin/.idx files (`course tokenize`), each split separately; unset: the profile's own"
    )
    tokenizer: Path | None = setting(None, "folder of the tokenizer that made the tokens; unset: the profile's own")
    split: str = setting("949,50,1", "shares of train, validation and test, contiguous in file order")
    seq_length: int = setting(1024, "tokens per sample; at most model.max_position_embeddings", ge=1, le=1 << 20)
    packing: Literal["stream", "best-fit"] = setting(
        "stream",
        "stream: documents laid end to end are cut into samples, as for GPT-2; "
        "best-fit: whole documents, longer ones in pieces, which do not see one another",
    )
    train_tokens: int | None = setting(
        None, "length of the training [tokens]; one epoch without this and those of `engine`", ge=1
    )
    mask_loss_at_eod: bool = setting(False, "ignore the loss where the input is the end-of-document token")
    reader_workers: int = setting(0, "processes per rank that read ahead; 0 = the rank itself reads", ge=0, le=64)
    cache: Path | None = setting(None, "folder of the sample indices; unset: index-cache in the output folder")


@dataclass(frozen=True, config=STRICT)
class PretrainConfig(RunConfig):
    """All settings for a pretraining run."""

    kind: Literal["pretrain"] = setting("pretrain", "kind of run that the file describes: that of `course pretrain`")
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
    def can_use_muon(self) -> bool:
        return self.model.architecture == "gpt2"

    @override
    def identity(self) -> dict[str, Any]:
        model = [each.name for each in fields(self.model) if each.name not in ("recompute", "attention")]
        return self.chosen(
            model=model,
            optimizer=[each.name for each in fields(self.optimizer) if each.name != "fused"],
            data=["split", "seq_length", "packing", "mask_loss_at_eod"],
            precision=["dtype"],
            engine=["seed"],
        )

    @override
    def lengths(self) -> dict[str, float | None]:
        return super().lengths() | {"data.train_tokens": self.data.train_tokens}

    @override
    def sizes(self, autocast: bool = False) -> Sizes:
        micro_batch, length = self.batch.micro_size, self.data.seq_length
        return memory.sizes(self.model, micro_batch, length, self.precision.dtype, autocast)


@dataclass(frozen=True, config=STRICT)
class RecipeConfig:
    """Profile settings for this chapter."""

    config: str = setting("gpt2-tiny.yaml", "the run's settings: a file under course_lib/configs, or a path")


# The chapter's section of a profile.
RECIPE_SECTION = Section("pretrain.recipe", RecipeConfig)

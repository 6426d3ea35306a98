"""Settings for `course gptsan encode`. The defaults match tools/make_tfrecord_simple.py in tanreinama/GPTSAN."""

from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from course_lib.settings.config import STRICT, setting


@dataclass(frozen=True, config=STRICT)
class EncodeConfig:
    """Settings for turning texts into training examples."""

    mode: Literal["lm", "mlm", "hybrid"] = setting(
        "lm",
        "training target: next tokens (lm), masked tokens (mlm), or masked tokens in a first part of random length and "
        "next tokens after it (hybrid)",
    )
    num_context: int = setting(1280, "length of an example [tokens]", ge=8, le=1 << 20)
    num_mask: float = setting(0.08, "share of the encoder part's tokens that are masked", ge=0, le=1)
    max_mask: int = setting(100, "maximum number of masks in an example [tokens]", ge=0)
    use_nextsent: bool = setting(
        False, "start each example with a line; learn whether the text follows that line (mlm, hybrid)"
    )
    hybrid_rate: float = setting(1.0, "share of hybrid examples in mode hybrid; the others are lm", ge=0, le=1)
    no_offset_mlm: bool = setting(False, "predict a masked token at its own position, not at the position before (mlm)")
    original_layout: bool = setting(
        False,
        "write exactly the original's examples: the end of text is not a target after the last token, "
        "and the rest of a line beyond the context is lost",
    )
    d_spout: int = setting(128, "width of the model's spout: classes are 0 to d_spout - 1", ge=1, le=1 << 20)
    shards: int = setting(8, "number of TFRecord files, filled in turn; 0: none", ge=0, le=10_000)
    seed: int = setting(0, "seed for the order of documents, the lengths and the masks", ge=0)

    @model_validator(mode="after")
    def _modes(self) -> "EncodeConfig":
        if self.use_nextsent and self.mode == "lm":
            raise ValueError("use_nextsent: true is not allowed: mode lm has no encoder part; allowed: mlm, hybrid")
        if self.no_offset_mlm and self.mode != "mlm":
            raise ValueError(f"no_offset_mlm: true is not allowed in mode {self.mode}; allowed: mlm")
        return self

"""Tokenizers judged by a small GPT-2: bits per raw character of unseen documents, after a short training.

Characters per token do not say how hard the tokens are to predict.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn import functional

from course_lib.errors import CourseError
from course_lib.evaluation.bits import Bits, bits
from course_lib.evaluation.causal import CausalScorer
from course_lib.evaluation.scoring import one_line
from course_lib.evaluation.windows import WindowSettings
from course_lib.language.words import tr
from course_lib.models.causal import build_model
from course_lib.models.config import ModelConfig
from course_lib.notebooks.progress import progress
from course_lib.settings.config import STRICT, setting
from course_lib.subword.config import END
from course_lib.subword.folder import Codec
from course_lib.training import quick
from course_lib.training.settings import OptimizerConfig, RateConfig


@dataclass(frozen=True, config=STRICT)
class SmallModelConfig:
    """A small GPT-2 and its training, the same for every tokenizer."""

    hidden_size: int = setting(64, "width of the residual stream", ge=2)
    num_layers: int = setting(1, "transformer blocks", ge=1)
    length: int = setting(64, "tokens per sequence", ge=2)
    batch: int = setting(16, "sequences per step", ge=1)
    passes: float = setting(1.0, "how often the training text is read", gt=0)
    steps: int = setting(0, "optimizer steps; 0: as many as the passes take", ge=0)
    rate: float = setting(1e-2, "largest learning rate", gt=0)


def train(codec: Codec, texts: Sequence[str], seed: int, settings: SmallModelConfig) -> CausalScorer:
    """Train a new model on raw documents and return it; `seed` sets its weights and the order of the sequences."""
    return _trained(codec, encoded(codec, texts), seed, settings)


def steps_of(stream: npt.NDArray[np.int64], settings: SmallModelConfig) -> int:
    """Return the optimizer steps of a training on ids: more for a tokenizer with shorter tokens, if not set."""
    sequences = (len(stream) - 1) // settings.length
    return settings.steps or max(round(sequences * settings.passes / settings.batch), 1)


def encoded(codec: Codec, texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the ids of the documents end to end, each followed by </s>; as in the evaluation, each is one line."""
    end = codec.tokenizer.token_to_id(END)
    return np.array([token for text in texts for token in (*codec.encode(one_line(text)), end)], np.int64)


def _trained(codec: Codec, stream: npt.NDArray[np.int64], seed: int, settings: SmallModelConfig) -> CausalScorer:
    length, sequences = settings.length, (len(stream) - 1) // settings.length
    if not sequences:
        raise CourseError(f"texts: {len(stream)} tokens; needed: more than {length}")
    torch.manual_seed(seed)
    model = build_model(
        ModelConfig(
            vocab_size=codec.tokenizer.get_vocab_size(),
            hidden_size=settings.hidden_size,
            num_layers=settings.num_layers,
            num_attention_heads=max(settings.hidden_size // 32, 1),
            max_position_embeddings=length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            # About 1/√width, as in configs/gpt2-tiny.yaml.
            initializer_range=0.1,
        )
    )
    steps = steps_of(stream, settings)
    rng = np.random.default_rng(seed)
    # Positions of the first tokens; each pass begins at another token.
    passes = range(steps * settings.batch // sequences + 1)
    starts = [rng.permutation(sequences) * length + rng.integers(0, (len(stream) - 1) % length + 1) for _ in passes]
    order = np.concatenate(starts)[: steps * settings.batch]
    firsts = (order[at : at + settings.batch, None] for at in range(0, len(order), settings.batch))
    batches = (torch.from_numpy(stream[first + np.arange(length + 1)]) for first in firsts)

    def loss(ids: Tensor) -> Tensor:
        return functional.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())

    rate = RateConfig(max=settings.rate, min=settings.rate / 10, warmup_steps=max(steps // 10, 1))
    quick.train(model, loss, batches, OptimizerConfig(weight_decay=0.1, beta2=0.95, lr=rate), steps)
    end = codec.tokenizer.token_to_id(END)
    assert end is not None
    return CausalScorer(model.eval(), codec.encode, codec.decode, end, end)


def judge(
    codecs: Mapping[str, Codec],
    texts: Sequence[str] | Mapping[str, npt.NDArray[np.int64]],
    unseen: Sequence[str],
    seeds: Sequence[int] = (0, 1, 2),
    settings: SmallModelConfig | None = None,
) -> dict[str, list[Bits]]:
    """Train one model per tokenizer and seed, and return its figures on unseen documents, in the order of the seeds.

    `texts` are the documents to train on, or for each tokenizer their ids as `encoded` returns them.
    """
    settings = settings or SmallModelConfig()
    # Overlapping windows would double the cost of scoring and lower all figures alike.
    windows = WindowSettings(stride=settings.length, batch_size=settings.batch)
    found: dict[str, list[Bits]] = {}
    with progress(len(codecs) * len(seeds), "model", "training small models") as bar:
        for name, codec in codecs.items():
            bar.set_postfix_str(tr(name))
            # Segmenting and encoding take about a quarter of the time of a short training.
            stream = texts[name] if isinstance(texts, Mapping) else encoded(codec, texts)
            for seed in seeds:
                found.setdefault(name, []).append(bits(_trained(codec, stream, seed, settings), unseen, windows))
                bar.update()
    return found

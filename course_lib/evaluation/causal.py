"""Scores of texts under a causal language model, such as GPT-2 or GPT-NeoX, with a prefix or without."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checkpoints.quiet import quiet
from course_lib.evaluation.scoring import Sampling, Scores, Tokens, Window
from course_lib.generation.codec import require_rows
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Prefix, Shape, learned_positions, past


class CausalScorer:
    """A Hugging Face model in memory as a `ScoringModel`. Log probabilities are computed in fp32 from its logits."""

    def __init__(
        self,
        model: Any,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
        begin: int,
        end: int,
        prefix: Tensor | None = None,
    ) -> None:
        """Take a model in eval mode, its codec, the ids before and at the end of a text, and a prefix [P, width]."""
        self.model, self.encode, self.decode = model, encode, decode
        self.begin, self.end, self.prefix = begin, end, prefix

    @property
    def max_length(self) -> int | None:
        """The model's maximum sequence length [tokens], minus the prefix positions; None if there is no limit."""
        positions: int | None = getattr(self.model.config, "max_position_embeddings", None)
        if positions is None or self.prefix is None or learned_positions(self.model.config) is None:
            return positions
        return positions - len(self.prefix)

    def tokens(self, text: str, end: bool) -> Tokens:
        """Return the tokens for a raw text."""
        ids = self.encode(text)
        target = [*ids, self.end] if end else ids
        return Tokens([self.begin, *target][: len(target)], target, self.decode(ids))

    @torch.inference_mode()
    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the scores of each window, for `target[first:]`.

        The batch is padded on the right, where no token of a causal model attends to the padding.
        """
        device = self.model.device
        width = max(len(window.read) for window in windows)
        ids = torch.tensor([window.read + [self.end] * (width - len(window.read)) for window in windows], device=device)
        cache = None
        if self.prefix is not None:
            shape = Shape.of(self.model.config)
            cache, _ = past([self.prefix] * len(windows), shape, self.model.dtype, device, grows=False)
        # transformers warns that a batch without an attention mask may be padded.
        with quiet():
            logits = self.model(input_ids=ids, past_key_values=cache, use_cache=False).logits
        return [target_scores(row, window) for row, window in zip(logits, windows, strict=True)]


class FolderScorer(CausalScorer):
    """The model of a `Generator` as a `GeneratingModel`."""

    default_top_p = (0.75, 0.95, 1.0)

    def __init__(self, generator: Generator, prefix: Prefix | None = None) -> None:
        """Take the model and the codec of a generator, and the prefix before every text."""
        if prefix is not None:
            generator.require(prefix)
        # `self.prefix`, of the base class, has only the values of this prefix.
        self.generator, self.loaded_prefix = generator, prefix
        codec, values = generator.codec, None if prefix is None else prefix.values
        # Tokens before a prompt: without a prefix, it may have an opening (codec.py).
        self.opening_length = 0 if prefix else len(codec.opening)
        decode = partial(codec.continuation, [])

        def encode(text: str) -> list[int]:
            return require_rows(codec, codec.encode(text), generator.rows)

        super().__init__(generator.model, encode, decode, generator.begin, generator.end, values)

    def complete(self, prompts: Sequence[str], sampling: Sampling) -> list[str]:
        """Return a continuation of each raw prompt."""
        most = sampling.tokens
        if self.max_length:
            most = min(most, self.max_length - 1 - self.opening_length)
        # A score depends on none of the model's own settings.
        settings = GenerateConfig(
            strategy="greedy",
            max_new_tokens=most,
            min_new_tokens=0,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
        )
        if sampling.temperature:
            settings = replace(
                settings, strategy="sampling", top_k=0, top_p=sampling.top_p, temperature=sampling.temperature
            )
        if sampling.seed is not None:
            settings = replace(settings, seed=sampling.seed)
        prompts = [self._shortened(prompt, most) for prompt in prompts]
        answers = self.generator.generate(prompts, settings, [self.loaded_prefix] * len(prompts))
        return [generated.continuation for (generated,) in answers]

    def _shortened(self, prompt: str, tokens: int) -> str:
        """Return the end of a prompt that leaves room for `tokens` tokens."""
        if not self.max_length:
            return prompt
        longest = self.max_length - tokens - self.opening_length
        while len(ids := self.encode(prompt)) > longest:
            shorter = self.decode(ids[len(ids) - longest :])
            # The shorter text can be segmented into more tokens than it had.
            prompt = shorter if len(shorter) < len(prompt) else prompt[1:]
        return prompt


def target_scores(logits: Tensor, window: Window) -> Scores:
    """Return the scores of `window.target[first:]`; logits[i] [vocabulary] is the prediction of target[i]."""
    rows = logits[window.first : len(window.target)].float()
    target = torch.tensor(window.target[window.first :], device=rows.device)
    chosen = rows.gather(1, target[:, None])[:, 0]
    log_probabilities = (chosen - rows.logsumexp(-1)).cpu().numpy().astype(np.float64)
    return Scores(log_probabilities, (rows.argmax(-1) == target).cpu().numpy())

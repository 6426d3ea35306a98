"""Scores of texts under a GPTSAN model, for the evaluation in course_lib/evaluation.

The model reads a text as in training: SOT SEG text newline EOT (layouts.py). Each window of a longer text begins alike.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from course_lib.errors import UsageError
from course_lib.evaluation.causal import target_scores
from course_lib.evaluation.scoring import Sampling, Scores, Tokens, Window
from course_lib.gptsan.config import GenerateConfig
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.settings.config import build


class GPTSanScorer:
    """A GPTSAN generator's model as a `GeneratingModel`."""

    default_top_p = (1.0,)

    def __init__(self, generator: GPTSanGenerator, spout: int | str = "none") -> None:
        """Take the model of a generator, and the spout input for every text (see GenerateConfig)."""
        self.generator, self.spout = generator, build(GenerateConfig, {"spout": spout}).spout
        self.vector = generator.spout(self.spout, 1, torch.Generator(generator.device).manual_seed(0))

    @property
    def max_length(self) -> int:
        """The model's maximum sequence length [tokens], minus the positions of SOT, SEG and the spout."""
        return int(self.generator.config.max_position_embeddings) - 2 - (self.vector is not None)

    def tokens(self, text: str, end: bool) -> Tokens:
        """Return the tokens for a raw text, which is cleaned as in training; with `end`, it ends in newline and EOT."""
        special, encoding = self.generator.special, self.generator.encoding
        prompt = self.generator.prompt(text)
        # prompt.read is SOT SEG text.
        read, target = prompt.read[1:], prompt.written
        if not end:
            return Tokens(read[:-1], target, encoding.decode(target))
        newline = [special.newline] * (target[-1:] != [special.newline])
        return Tokens(read + newline, [*target, *newline, special.eot], encoding.decode(target))

    @torch.inference_mode()
    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the scores of each window's `target[first:]`. The batch is padded on the right."""
        special, device = self.generator.special, self.generator.device
        # The first window of a text begins with SEG.
        heads = [[special.sot] if window.start == 0 else [special.sot, special.seg] for window in windows]
        rows = [[*head, *window.read] for head, window in zip(heads, windows, strict=True)]
        width = max(map(len, rows))
        ids = torch.tensor([row + [special.nottoken] * (width - len(row)) for row in rows], device=device)
        spout = None if self.vector is None else self.vector.expand(len(rows), -1)
        logits = self.generator.model(ids, spout=spout, use_cache=False).logits
        parts = zip(logits, heads, windows, strict=True)
        return [target_scores(row[len(head) :], window) for row, head, window in parts]

    def complete(self, prompts: Sequence[str], sampling: Sampling) -> list[str]:
        """Return a continuation of each raw prompt.

        Raises UsageError for another `top_p` than 1: the GPTSAN generator samples from all tokens.
        """
        if sampling.top_p != 1:
            raise UsageError(f"--top-p: {sampling.top_p} is not allowed with a GPTSAN model; allowed: 1")
        settings = GenerateConfig(
            spout=self.spout,
            max_new_tokens=sampling.tokens,
            top_k=0,
            greedy=not sampling.temperature,
            temperature=sampling.temperature or 1.0,
        )
        if sampling.seed is not None:
            settings = replace(settings, seed=sampling.seed)
        answers = []
        for prompt in prompts:
            while len(self.generator.prompt(prompt).read) + sampling.tokens > self.max_length and len(prompt) > 1:
                prompt = prompt[max(len(prompt) // 16, 1) :]
            (text,) = self.generator.continue_text(prompt, settings)
            answers.append(text[len(prompt) :])
        return answers

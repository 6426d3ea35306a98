"""Selection of the next token for each sequence from its logits.

Bad words are banned, and then the repetition penalty and temperature are applied. The next token is the most likely
one, or it is sampled as in FasterTransformer: the first of the top_k tokens, sorted by probability, whose cumulative
probability reaches a random number from [0, top_p). Each sequence has its own random generator, so its text does not
depend on the other sequences in the batch.
"""

import random

import torch
from torch import Tensor

from course_lib.serving.request import Answer, TextRequest


class Text:
    """A sequence that is being generated, with its tokens so far."""

    def __init__(self, row: TextRequest, end: int) -> None:
        self.row = row
        self.end = end
        self.ids = list(row.ids)
        self.log_probs: list[float] = []
        self.left = row.output_length  # tokens still allowed
        self.finished = False
        self.rng = random.Random(row.seed)
        self.top_p = row.top_p or 1.0

    def add(self, token: int, log_prob: float | None = None) -> None:
        """Append a token, unless the text has ended."""
        if self.finished:
            return
        self.ids.append(token)
        if log_prob is not None:
            self.log_probs.append(log_prob)
        self.left -= 1
        self.finished = token == self.end or not self.left or any(self.ends_in(word) for word in self.row.stop_words)
        if self.row.top_k == 0:
            reset = token == self.row.top_p_reset_id
            self.top_p = self.row.top_p if reset else max(self.top_p * self.row.top_p_decay, self.row.top_p_min)

    def ends_in(self, word: tuple[int, ...]) -> bool:
        """Return whether the text (input and new tokens) ends with the tokens of `word`."""
        return not word or tuple(self.ids[-len(word) :]) == word

    def answer(self) -> Answer:
        """Return the text in its current state."""
        return Answer(self.ids, self.log_probs)


def adjust(logits: Tensor, texts: list[Text]) -> Tensor:
    """Return fp32 logits [N, V] after applying each sequence's bad words, repetition penalty and temperature."""
    scores = logits.float()
    for scored, text in zip(scores, texts, strict=True):
        for word in text.row.bad_words:
            if text.ends_in(word[:-1]):
                scored[word[-1]] = -torch.inf
        if text.row.repetition_penalty != 1:
            known = torch.tensor(sorted(set(text.ids)), device=scored.device)
            seen_logits, penalty = scored[known], text.row.repetition_penalty
            scored[known] = torch.where(seen_logits < 0, seen_logits * penalty, seen_logits / penalty)
    if any(text.row.temperature != 1 for text in texts):
        scores /= scores.new_tensor([text.row.temperature for text in texts])[:, None]
    return scores


def write(logits: Tensor, texts: list[Text], log_probs: bool) -> None:
    """Append the next token to each of the N texts, given their logits [N, V], and its log probability if asked for."""
    scores = adjust(logits, texts)
    chosen = scores.argmax(-1)
    if drawing := [index for index, text in enumerate(texts) if not text.row.greedy]:
        chosen[drawing] = draw(scores[drawing], [texts[index] for index in drawing])
    values: list[float | None] = [None] * len(texts)
    if log_probs:
        values = scores.log_softmax(-1).gather(-1, chosen[:, None])[:, 0].tolist()
    for text, token, log_prob in zip(texts, chosen.tolist(), values, strict=True):
        text.add(token, log_prob)


def draw(scores: Tensor, texts: list[Text]) -> Tensor:
    """Return a sampled token id for each text, based on its scores [N, V], top_k and top_p."""
    width = scores.shape[1]
    kept = [min(text.row.top_k or width, width) for text in texts]
    best = scores.topk(max(kept))
    last = torch.tensor(kept, device=scores.device)[:, None] - 1
    outside = torch.arange(max(kept), device=scores.device) > last
    mass = best.values.masked_fill(outside, -torch.inf).softmax(-1).cumsum(-1)
    aim = scores.new_tensor([text.rng.random() * text.top_p for text in texts])[:, None]
    index = (mass < aim).sum(-1, keepdim=True).minimum(last)
    return best.indices.gather(-1, index)[:, 0]

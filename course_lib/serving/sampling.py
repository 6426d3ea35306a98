"""From logits to the next token of each row: bans, repetition penalty, temperature, then the likeliest or a draw.

Drawing as FasterTransformer does it: the top_k tokens in order of probability, a random number times top_p, and the token at which the
summed probability passes it. Each row has random numbers of its own, so its text does not depend on the rows beside it.
"""

import random

import torch
from torch import Tensor

from course_lib.serving.request import Beam, Row


class Text:
    """A row that is being written."""

    def __init__(self, row: Row, end: int) -> None:
        self.row = row
        self.end = end
        self.ids = list(row.ids)
        self.log_probs: list[float] = []
        self.score = 0.0  # their sum
        self.left = row.output_length
        self.finished = False
        self.rng = random.Random(row.seed)
        self.top_p = row.top_p or 1.0

    def branch(self) -> "Text":
        """A copy that goes on by itself; for beam search, which draws nothing."""
        other = Text.__new__(Text)
        other.__dict__.update(self.__dict__, ids=self.ids.copy(), log_probs=self.log_probs.copy())
        return other

    def add(self, token: int, log_prob: float | None = None) -> None:
        """Writes a token, unless the text has ended."""
        if self.finished:
            return
        self.ids.append(token)
        if log_prob is not None:
            self.log_probs.append(log_prob)
            self.score += log_prob
        self.left -= 1
        self.finished = token == self.end or not self.left or any(self.ends_in(word) for word in self.row.stop_words)
        if self.row.top_k == 0:
            reset = token == self.row.top_p_reset_id
            self.top_p = self.row.top_p if reset else max(self.top_p * self.row.top_p_decay, self.row.top_p_min)

    def ends_in(self, word: tuple[int, ...]) -> bool:
        """Whether these are the last tokens, of input and output together."""
        return not word or tuple(self.ids[-len(word) :]) == word

    def beam(self) -> Beam:
        """The text as it stands."""
        return Beam(self.ids, self.log_probs)


def adjust(logits: Tensor, texts: list[Text]) -> Tensor:
    """Logits [N, V] in float32 after what each row asks for: bad words, temperature, repetition penalty."""
    scores = logits.float()
    for scored, text in zip(scores, texts, strict=True):
        for word in text.row.bad_words:
            if text.ends_in(word[:-1]):
                scored[word[-1]] = -torch.inf
        if text.row.repetition_penalty != 1:
            known = torch.tensor(sorted(set(text.ids)), device=scored.device)
            found, penalty = scored[known], text.row.repetition_penalty
            scored[known] = torch.where(found < 0, found * penalty, found / penalty)
    if any(text.row.temperature != 1 for text in texts):
        scores /= scores.new_tensor([text.row.temperature for text in texts])[:, None]
    return scores


def write(logits: Tensor, texts: list[Text], log_probs: bool) -> None:
    """Adds to each text its next token, of logits [N, V]."""
    scores = adjust(logits, texts)
    chosen = scores.argmax(-1)
    if drawing := [place for place, text in enumerate(texts) if not text.row.greedy]:
        chosen[drawing] = draw(scores[drawing], [texts[place] for place in drawing])
    found = scores.log_softmax(-1).gather(-1, chosen[:, None])[:, 0].tolist() if log_probs else [None] * len(texts)
    for text, token, log_prob in zip(texts, chosen.tolist(), found, strict=True):
        text.add(token, log_prob)


def draw(scores: Tensor, texts: list[Text]) -> Tensor:
    """A token for each row of scores [N, V], from its top_k and top_p."""
    width = scores.shape[1]
    kept = [min(text.row.top_k or width, width) for text in texts]
    best = scores.topk(max(kept))
    last = torch.tensor(kept, device=scores.device)[:, None] - 1
    outside = torch.arange(max(kept), device=scores.device) > last
    mass = best.values.masked_fill(outside, -torch.inf).softmax(-1).cumsum(-1)
    aim = scores.new_tensor([text.rng.random() * text.top_p for text in texts])[:, None]
    place = (mass < aim).sum(-1, keepdim=True).minimum(last)
    return best.indices.gather(-1, place)[:, 0]

"""Beam search as FasterTransformer's GPT-NeoX does it: a finished text keeps its place among the beams until a better one takes it."""

import torch
from torch import Tensor

from course_lib.serving.sampling import Text, adjust


def step(logits: Tensor, rows: list[list[Text]]) -> tuple[list[list[Text]], list[list[int]]]:
    """The next beams of each row, best first, and of which line of `logits` each goes on.

    `logits` [N, V] has a line for each text of `rows` in turn. A row begins with one text and has beam_width of them from then on.
    """
    log_probs = adjust(logits, [text for row in rows for text in row]).log_softmax(-1)
    grown: list[list[Text]] = []
    parents: list[list[int]] = []
    first = 0
    for row in rows:
        best = _best(log_probs[first : first + len(row)], row)
        grown.append([text for text, _ in best])
        parents.append([first + parent for _, parent in best])
        first += len(row)
    return grown, parents


def _best(log_probs: Tensor, texts: list[Text]) -> list[tuple[Text, int]]:
    """The beam_width best continuations of one row's texts with their parents, by log probability and length."""
    width, penalty, vocabulary = texts[0].row.beam_width, texts[0].row.len_penalty, log_probs.shape[1]
    scores = torch.full_like(log_probs, -torch.inf)
    found: list[tuple[float, Text, int]] = []
    for place, text in enumerate(texts):
        if text.finished:
            found.append((text.score / len(text.ids) ** penalty, text, place))
        else:
            scores[place] = (text.score + log_probs[place]) / (len(text.ids) + 1) ** penalty
    top = scores.flatten().topk(min(width, scores.numel()))
    for score, index in zip(top.values.tolist(), top.indices.tolist(), strict=True):
        place, token = divmod(index, vocabulary)
        if texts[place].finished:
            continue
        text = texts[place].branch()
        text.add(token, log_probs[place, token].item())
        found.append((score, text, place))
    found.sort(key=lambda entry: -entry[0])
    return [(text, place) for _, text, place in found[:width]]

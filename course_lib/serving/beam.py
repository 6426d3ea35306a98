"""Beam search, as implemented for GPT-NeoX in FasterTransformer.

A finished text remains one of the hypotheses until a better hypothesis replaces it.
"""

import torch
from torch import Tensor

from course_lib.serving.sampling import Text, adjust


def step(logits: Tensor, rows: list[list[Text]]) -> tuple[list[list[Text]], list[list[int]]]:
    """Return the next hypotheses for each sequence, best first, and the row index of each one's parent in `logits`.

    `rows` has the hypotheses for each sequence, one at first and then beam_width; logits [N, V] has a row for each.
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
    """Return the beam_width best continuations for one sequence, each with the index of its parent text.

    The score of a text is its log probability divided by its length to the power of `len_penalty`.
    """
    width, penalty, vocabulary = texts[0].row.beam_width, texts[0].row.len_penalty, log_probs.shape[1]
    scores = torch.full_like(log_probs, -torch.inf)
    candidates: list[tuple[float, Text, int]] = []
    for parent, text in enumerate(texts):
        if text.finished:
            candidates.append((text.score / len(text.ids) ** penalty, text, parent))
        else:
            scores[parent] = (text.score + log_probs[parent]) / (len(text.ids) + 1) ** penalty
    top = scores.flatten().topk(min(width, scores.numel()))
    for score, index in zip(top.values.tolist(), top.indices.tolist(), strict=True):
        parent, token = divmod(index, vocabulary)
        if texts[parent].finished:
            continue
        text = texts[parent].branch()
        text.add(token, log_probs[parent, token].item())
        candidates.append((score, text, parent))
    candidates.sort(key=lambda entry: -entry[0])
    return [(text, parent) for _, text, parent in candidates[:width]]

"""For notebook 6b: texts sampled as token ids, and padding that tells prompt and text apart."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# Positions of the longest text. Of 1,500 documents of the small world, the longest takes 181 with both ends.
LONGEST = 200


@torch.inference_mode()
def sample(model: Any, starts: Sequence[Sequence[int]], end: int, longest: int = LONGEST) -> list[list[int]]:
    """Return a continuation of each list of ids, drawn at temperature 1 from torch's generator.

    A continuation that comes to its end has the id `end` as its last; the others stop at `longest` tokens with their
    start. All are drawn in one batch with a key/value cache, from which texts that have ended are dropped.
    """
    width = max(map(len, starts))
    rows = [[end] * (width - len(start)) + [*start] for start in starts]
    device, longest = model.device, min(longest, model.config.max_position_embeddings)
    mask = torch.tensor([[0] * (width - len(start)) + [1] * len(start) for start in starts]).to(device)
    read, position = torch.tensor(rows, device=device), (mask.cumsum(1) - 1).clamp(min=0)
    written: list[list[int]] = [[] for _ in starts]
    alive, cache = list(range(len(starts))), None
    for _ in range(longest - width):
        output = model(read, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True)
        cache, chances = output.past_key_values, output.logits[:, -1].float().softmax(-1).cumsum(-1)
        # The first token up to which the chances add up to more than a random number. `multinomial` draws 1,280 random
        # numbers for each token, which took a fifth of the time.
        read = torch.searchsorted(chances, torch.rand(len(chances), 1, device=device) * chances[:, -1:], right=True)
        for row, token in zip(alive, read[:, 0].tolist(), strict=True):
            written[row].append(token)
        position, mask = position[:, -1:] + 1, torch.cat([mask, torch.ones_like(read)], 1)
        going = (read[:, 0] != end).nonzero()[:, 0]
        if len(going) == 0:
            break
        # Dropping copies the cache, so it waits for an eighth of the texts.
        alive_texts = [row for row in alive if written[row][-1] != end]
        if len(alive_texts) <= len(alive) * 7 // 8:
            cache.batch_select_indices(going)
            alive, read, position, mask = alive_texts, read[going], position[going], mask[going]
    return [ids[: ids.index(end) + 1] if end in ids else ids for ids in written]


def padded(start: Sequence[int], texts: Sequence[Sequence[int]], end: int) -> tuple[Tensor, Tensor]:
    """Return ids [texts, seq] of texts behind one start, padded with `end`, and a mask: 1 for the texts' own tokens."""
    width = max(map(len, texts))
    ids = torch.tensor([[*start, *text, *[end] * (width - len(text))] for text in texts])
    mask = torch.tensor([[0.0] * len(start) + [1.0] * len(text) + [0.0] * (width - len(text)) for text in texts])
    return ids, mask

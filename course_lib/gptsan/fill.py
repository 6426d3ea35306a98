"""Mask filling with a GPTSAN model that was trained on mlm or hybrid examples.

The whole text is the prefix, so all positions attend to each other. As in the examples from layouts.py, a masked token
is predicted at the position before its own, with `no_offset` at its own. Each mask stands for one token, and is filled
independently of the others, so byte tokens that are a part of a character are no candidates.
"""

from dataclasses import dataclass

import torch

from course_lib.errors import UsageError
from course_lib.gptsan.generate import GPTSANGenerator
from course_lib.gptsan.generation_config import FillConfig

MASK = "[MASK]"


@dataclass(frozen=True)
class Choice:
    """Candidate for a mask: its name in the vocabulary, and its probability."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """Text with each mask replaced by its most probable token, and each mask's candidates, most probable first."""

    text: str
    masks: list[list[Choice]]


@torch.inference_mode()
def fill(generator: GPTSANGenerator, text: str, settings: FillConfig | None = None) -> Filled:
    """Fill each `[MASK]` in a text with one token."""
    settings = settings or FillConfig()
    first, *others = text.split(MASK)
    if not others:
        raise UsageError(f"text: has no {MASK} to fill")
    # As in a prefix, the ids begin with SOT (start of text), and the text is not cleaned.
    ids, masked = [generator.marks.sot, *generator.encoding.encode_text(first)], []
    for piece in others:
        masked.append(len(ids))
        ids += [generator.marks.msk, *generator.encoding.encode_text(piece)]
    spout = generator.spout(settings, 1, generator.rng(settings))
    slots, positions = len(ids) + (spout is not None), generator.config.max_position_embeddings
    if slots > positions:
        raise UsageError(f"text: {slots} tokens are not allowed: the model has {positions} positions")
    logits = generator.read(ids, len(ids), spout, use_cache=False)[0].float()
    places = [position if settings.no_offset else position - 1 for position in masked]
    # A mask stands between whole characters, and one token is left to fill it.
    nothing = torch.empty(1, 0, dtype=torch.long, device=generator.device)
    blocked = generator.characters.blocked(nothing, 1)[:, : generator.marks.sot]
    # [masks, entries]. Named special tokens, whose ids start at SOT, are never candidates.
    shares = logits[places, : generator.marks.sot].masked_fill(blocked, -torch.inf).softmax(-1)
    best = shares.topk(min(settings.choices, int((~blocked).sum())))
    for position, choice in zip(masked, best.indices[:, 0].tolist(), strict=True):
        ids[position] = choice
    names = generator.encoding.names
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    masks = [[Choice(names[token], share) for token, share in zip(*row, strict=True)] for row in rows]
    return Filled(generator.encoding.decode(ids), masks)

"""Mask filling with a GPTSAN model that was trained on mlm or hybrid examples.

The whole text is the prefix, so that all positions attend to each other. A masked token is predicted at the position
before its own, as in the examples of layouts.py; with `no_offset` it is predicted at its own position. Each mask stands
for one token. The masks are filled independently of each other.
"""

from dataclasses import dataclass

import torch

from course_lib.errors import UsageError
from course_lib.gptsan.generate import Generator
from course_lib.gptsan.generation_config import FillConfig
from course_lib.gptsan.prefix import prefix_types

MASK = "[MASK]"


@dataclass(frozen=True)
class Choice:
    """Candidate for a mask: its name in the vocabulary, and its probability from 0 to 1."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """Text with each mask replaced by its most probable token, and each mask's candidates, most probable first."""

    text: str
    masks: list[list[Choice]]


@torch.inference_mode()
def fill(generator: Generator, text: str, settings: FillConfig | None = None) -> Filled:
    """Fill each `[MASK]` of a text with one token.

    Raises:
        UsageError: The text has no mask or is longer than the model's positions, or the model does not have the spout
            or class that the settings name.
    """
    settings = settings or FillConfig()
    ids, masked = _read(generator, text)
    spout = generator.spout(settings, 1, generator.rng(settings))
    slots, positions = len(ids) + (spout is not None), generator.config.max_position_embeddings
    if slots > positions:
        raise UsageError(f"text: {slots} tokens are not allowed: the model has {positions} positions")
    inputs = torch.tensor([ids], device=generator.device)
    types = prefix_types(torch.tensor([len(ids)], device=generator.device), len(ids), spout is not None)
    logits = generator.model(inputs, token_type_ids=types, spout=spout, use_cache=False).logits[0].float()
    rows = [position if settings.no_offset else position - 1 for position in masked]
    # [masks, entries]. A mask never replaces a named special token; the ids of these tokens begin with SOT.
    shares = logits[rows, : generator.marks.sot].softmax(-1)
    best = shares.topk(min(settings.choices, shares.shape[1]))
    for position, choice in zip(masked, best.indices[:, 0].tolist(), strict=True):
        ids[position] = choice
    names = generator.encoding.names
    masks = [
        [Choice(names[token], share) for token, share in zip(*row, strict=True)]
        for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return Filled(generator.encoding.decode(ids), masks)


def _read(generator: Generator, text: str) -> tuple[list[int], list[int]]:
    """Return the ids of SOT (start of text) and the uncleaned text, as in a prefix, and the positions of its masks."""
    first, *others = text.split(MASK)
    if not others:
        raise UsageError(f"text: has no {MASK} to fill")
    ids, masked = [generator.marks.sot, *generator.encoding.encode_text(first)], []
    for piece in others:
        masked.append(len(ids))
        ids += [generator.marks.msk, *generator.encoding.encode_text(piece)]
    return ids, masked

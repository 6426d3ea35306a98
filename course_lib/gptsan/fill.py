"""Fills the masks of a text with a GPTSAN that was trained on mlm or hybrid examples.

The whole text is prefix, so that each position sees all others. A masked token is predicted at the position before its own, as
layouts.py stores it (`no_offset`: at its own). Each mask stands for one token, and is filled without regard to the other masks.
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
    """A piece that may stand in a mask's place: its name in the vocabulary, and how probable it is."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """The text with the likeliest piece in each mask, and for each mask its best choices, likeliest first."""

    text: str
    masks: list[list[Choice]]


@torch.inference_mode()
def fill(generator: Generator, text: str, settings: FillConfig | None = None) -> Filled:
    """Fills each `[MASK]` of a text.

    Raises UsageError for a text without a mask or longer than the model's positions, and for a spout that the model does not have.
    """
    settings = settings or FillConfig()
    ids, places = _read(generator, text)
    spout = generator.spout(settings, 1, generator.rng(settings))
    slots, positions = len(ids) + (spout is not None), generator.config.max_position_embeddings
    if slots > positions:
        raise UsageError(f"text: {slots} tokens are not allowed: the model has {positions} positions")
    inputs = torch.tensor([ids], device=generator.device)
    types = prefix_types(torch.tensor([len(ids)], device=generator.device), len(ids), spout is not None)
    logits = generator.model(inputs, token_type_ids=types, spout=spout, use_cache=False).logits[0].float()
    asked = [place if settings.no_offset else place - 1 for place in places]
    shares = logits[asked, : generator.marks.sot].softmax(-1)  # [masks, entries]: no mask hides a named token
    best = shares.topk(min(settings.choices, shares.shape[1]))
    for place, choice in zip(places, best.indices[:, 0].tolist(), strict=True):
        ids[place] = choice
    names = generator.encoding.names
    return Filled(
        generator.encoding.decode(ids),
        [
            [Choice(names[token], share) for token, share in zip(*row, strict=True)]
            for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ],
    )


def _read(generator: Generator, text: str) -> tuple[list[int], list[int]]:
    """SOT and the ids of the text, raw as training reads a prefix; where the masks are."""
    pieces = text.split(MASK)
    if len(pieces) == 1:
        raise UsageError(f"text: has no {MASK} to fill")
    ids, places = [generator.marks.sot], []
    for piece in pieces:
        ids += [*generator.encoding.encode_text(piece), generator.marks.msk]
        places.append(len(ids) - 1)
    return ids[:-1], places[:-1]

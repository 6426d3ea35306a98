"""Text from one frozen model and many prefixes: every row of a batch has its own prefix or none, as the server of chapter 7 does.

Generating itself is `transformers`' own `generate`: it is given the prefixes as its cache, with the mask of both and the positions of the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints.quiet import quiet
from course_lib.errors import UsageError
from course_lib.prefix import base
from course_lib.prefix.cache import Shape, learned_positions, past, positions
from course_lib.prefix.files import Prefix
from course_lib.pretrain.generate import Generated, Generator, seeded
from course_lib.pretrain.generation import GenerateConfig


@dataclass(frozen=True)
class _Row:
    """A prompt on its way: its place in the answer, its ids, and the longest continuation [tokens]."""

    place: int
    prompt: str
    ids: list[int]
    prefix: Prefix | None
    room: int


class PrefixGenerator(Generator):
    """A GPT-2 or GPT-NeoX loaded once. Prefixes are looked at, never put into the model."""

    def __init__(self, folder: Path, any_base: bool = False) -> None:
        """Raises CourseError for a folder of another model. `any_base` takes prefixes of the same shape that were trained on other weights."""
        self.shape = Shape.of(base.read_config(folder))
        super().__init__(folder)
        self.folder, self.any_base = folder, any_base

    @cached_property
    def digest(self) -> str:
        """Of the model's weights; read once, and only if a prefix names its base."""
        return base.digest(self.folder)

    def generate(  # type: ignore[override]
        self, prompts: Sequence[str], prefixes: Sequence[Prefix | None], settings: GenerateConfig | None = None
    ) -> list[list[Generated]]:
        """For each prompt `num_return_sequences` texts behind its prefix, or behind none. An empty prompt begins a document.

        Greedy and beam search give a row the text it would have alone; a sample depends on the rows beside it, which draw from the same
        random numbers. Raises CourseError for a prefix of another model, UsageError if a row does not fit the model's positions: a GPT-2's
        prefix takes some, a GPT-NeoX's none.
        """
        settings = settings or GenerateConfig()
        if len(prompts) != len(prefixes):
            raise UsageError(
                f"prefixes: {len(prefixes)} for {len(prompts)} prompts; each prompt needs one (None for none)"
            )
        for prefix in {id(prefix): prefix for prefix in prefixes if prefix}.values():
            prefix.require(self.shape, "" if self.any_base or not prefix.base else self.digest)
        rows = [
            self._row(place, prompt, prefix, settings)
            for place, (prompt, prefix) in enumerate(zip(prompts, prefixes, strict=True))
        ]
        # A row that ends early takes up positions until the last one ends, and these settings would look at the padding.
        looks_back = settings.repetition_penalty != 1 or settings.no_repeat_ngram_size > 0
        batches: dict[tuple[int, int], list[_Row]] = {}
        for row in rows:
            batches.setdefault((row.room, len(row.ids) if looks_back else 0), []).append(row)
        answers: list[list[Generated]] = [[] for _ in rows]
        with torch.inference_mode(), quiet(), seeded(settings.seed, self.device):
            for batch in batches.values():
                for row, answer in zip(batch, self._run(batch, settings), strict=True):
                    answers[row.place] = answer
        return answers

    def _row(self, place: int, prompt: str, prefix: Prefix | None, settings: GenerateConfig) -> _Row:
        ids = self.codec.encode(prompt)
        taken = len(prefix) if prefix and learned_positions(self.model.config) is not None else 0
        try:
            room = self._room((len(ids) or 1) + taken, settings)
        except UsageError as error:
            raise UsageError(f"{error}; the prefix takes {taken} of them" if taken else str(error)) from error
        return _Row(place, prompt, ids, prefix, room)

    def _run(self, rows: list[_Row], settings: GenerateConfig) -> list[list[Generated]]:
        """One batch, padded on the left."""
        count = settings.num_return_sequences
        prompts = [row.ids or [self.begin] for row in rows]
        width = max(map(len, prompts))
        inputs = torch.tensor([[self.end] * (width - len(ids)) + ids for ids in prompts], device=self.device)
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts], device=self.device)
        outputs = self.model.generate(
            inputs,
            generation_config=self._arguments(settings, rows[0].room),
            **self._before(rows, mask, max(settings.beams, count)),
        )
        texts = [outputs[first : first + count, width:].tolist() for first in range(0, len(outputs), count)]
        return [
            [Generated(self.codec.shown(row.prompt), self._continuation(row.ids, ids)) for ids in found]
            for row, found in zip(rows, texts, strict=True)
        ]

    def _before(self, rows: list[_Row], mask: torch.Tensor, copies: int) -> dict[str, Any]:
        """The arguments that put each row behind its prefix: `generate` makes copies of a row for beams and samples, but not of its cache."""
        values = [row.prefix.values if row.prefix else None for row in rows]
        if all(value is None for value in values):
            return {"attention_mask": mask}
        repeated = [value for value in values for _ in range(copies)]
        cache, front = past(repeated, self.shape, self.model.dtype, self.device)
        front = front[::copies]
        return {
            "past_key_values": cache,
            "attention_mask": torch.cat([front, mask], 1),
            "position_ids": positions(front.sum(1), mask),
        }


@dataclass(frozen=True)
class Side:
    """One prompt behind one prefix: the name of its task, empty for the bare model, and the texts."""

    prompt: str
    task: str
    texts: list[Generated]


def side_by_side(
    model_folder: Path,
    prompts: Sequence[str],
    prefixes: Sequence[Prefix],
    settings: GenerateConfig | None = None,
    any_base: bool = False,
) -> list[Side]:
    """Each prompt without a prefix, then with every one of them, all in one batch."""
    pairs = [(prompt, prefix) for prompt in prompts for prefix in (None, *prefixes)]
    generator = PrefixGenerator(model_folder, any_base)
    found = generator.generate([prompt for prompt, _ in pairs], [prefix for _, prefix in pairs], settings)
    return [
        Side(prompt, prefix.task if prefix else "", texts) for (prompt, prefix), texts in zip(pairs, found, strict=True)
    ]

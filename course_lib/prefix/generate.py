"""Generation with one frozen model and many prefixes: each row of a batch has its own prefix or none.

The server of chapter 7 works in the same way. Here, `generate` of transformers produces the text. It receives the
prefixes as its key/value cache, the attention mask of prefixes and texts, and the position ids of the texts.
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
    """A prompt in a batch: its index in the result, its ids, and its longest continuation [tokens]."""

    place: int
    prompt: str
    ids: list[int]
    prefix: Prefix | None
    room: int


class PrefixGenerator(Generator):
    """A GPT-2 or GPT-NeoX that is loaded once and generates with any prefixes. The model itself is not changed."""

    def __init__(self, folder: Path, any_base: bool = False) -> None:
        """Load the model.

        Args:
            folder: folder of the model.
            any_base: whether prefixes of the same shape that were trained on other weights are accepted.

        Raises:
            CourseError: the folder holds another kind of model.
        """
        self.shape = Shape.of(base.read_config(folder))
        super().__init__(folder)
        self.folder, self.any_base = folder, any_base

    @cached_property
    def digest(self) -> str:
        """Digest of the model's weights, computed once and only if a prefix names its base."""
        return base.digest(self.folder)

    def generate(  # type: ignore[override]
        self, prompts: Sequence[str], prefixes: Sequence[Prefix | None], settings: GenerateConfig | None = None
    ) -> list[list[Generated]]:
        """Return `num_return_sequences` texts for each prompt, generated with its prefix or without one.

        With greedy and beam search, a row gets the same text as if it were alone. A sampled text depends on the other
        rows of the batch, because all rows draw from the same random generator.

        Args:
            prompts: raw texts; an empty prompt starts a new document.
            prefixes: one for each prompt; None for a prompt without a prefix.
            settings: generation settings; None: the defaults.

        Raises:
            CourseError: a prefix belongs to another model.
            UsageError: a row exceeds the model's positions. A prefix takes up positions of a GPT-2, but none of a
                GPT-NeoX.
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
        # Rows are grouped by room, because a row that ends early takes up positions until the last one ends. They are
        # also grouped by length if a setting examines earlier tokens, because it would examine the padding too.
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
        """Return the texts of one batch, which is padded on the left."""
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
            [Generated(self.codec.shown(row.prompt), self._continuation(row.ids, ids)) for ids in sequences]
            for row, sequences in zip(rows, texts, strict=True)
        ]

    def _before(self, rows: list[_Row], mask: torch.Tensor, copies: int) -> dict[str, Any]:
        """Return the arguments of `generate` that place each row after its prefix.

        `generate` repeats each row for beams and samples, but not the cache. The cache is therefore made with the
        copies.

        Args:
            rows: the rows of the batch.
            mask: attention mask of the texts, [batch, seq].
            copies: number of times that `generate` repeats each row.
        """
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
    """The texts generated for one prompt with one prefix.

    `task` names the prefix and is empty for the model without a prefix.
    """

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
    """Return the texts for each prompt without a prefix and then with every prefix, generated in one call."""
    pairs = [(prompt, prefix) for prompt in prompts for prefix in (None, *prefixes)]
    generator = PrefixGenerator(model_folder, any_base)
    results = generator.generate([prompt for prompt, _ in pairs], [prefix for _, prefix in pairs], settings)
    return [
        Side(prompt, prefix.task if prefix else "", texts)
        for (prompt, prefix), texts in zip(pairs, results, strict=True)
    ]

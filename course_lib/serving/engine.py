"""Text generation from an exported folder, as in the FasterTransformer backend. Uses neither files nor Triton.

A batch can mix sequences with different lengths, tasks and sampling settings (batch.py). The engine chooses the same
tokens as FasterTransformer: unlike the course's other generators, it does not keep the bytes of a character together.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from course_lib.errors import UsageError
from course_lib.generation.config import LEAST, MOST
from course_lib.language.words import tr
from course_lib.serving.batch import Generation, TextBatch
from course_lib.serving.request import Answer, TextRequest
from course_lib.serving.sampling import Text


class Engine:
    """The model and the prefixes of an exported folder, ready to generate."""

    def __init__(self, loaded: Any) -> None:
        """Create an engine for the result of reader.load."""
        self.model = loaded.model
        self.prefixes = list(loaded.prefixes)
        self.start_id, self.end_id = loaded.config.start_id, loaded.config.end_id
        self.vocabulary: int = self.model.config.vocab_size
        # The maximum length, including the prefix [tokens]
        self.positions: int = self.model.config.max_position_embeddings

    def run(self, rows: Sequence[TextRequest], log_probs: bool = False) -> list[Answer]:
        """Return the responses to `rows`, in their order, with the log probability of each new token if asked for."""
        for row in rows:
            self.check(row)
        generations = [self.generation(row, log_probs) for row in rows]
        # The longest texts begin first, so that none of them runs alone in the end
        waiting = sorted(generations, key=lambda one: (-one.text.left, -len(one.input)))
        batch = TextBatch(self.model)
        while waiting or batch.running:
            joining, waiting = waiting[: batch.free], waiting[batch.free :]
            batch.join(joining)
            if batch.running:
                batch.step()
        return [generation.text.answer() for generation in generations]

    def generation(self, row: TextRequest, log_probs: bool = False) -> Generation:
        """Return a valid row ready to join a batch."""
        text = Text(row, self.end_id if row.end_id is None else row.end_id)
        return Generation(self._input(row), self._prefix(row), text, log_probs)

    def check(self, row: TextRequest) -> None:
        """Raise UsageError if a sequence is invalid; the message names the request tensor."""
        for name, value, allowed in self._wrong(row):
            raise UsageError(tr("{name}: {value} is not allowed; {allowed}", name=name, value=value, allowed=allowed))

    def _wrong(self, row: TextRequest) -> Iterator[tuple[str, object, str]]:
        """Yield (tensor name, value, description of the allowed values) for each problem with a sequence."""
        if row.task is not None and not 0 <= row.task < len(self.prefixes):
            there = tr("allowed: 0 to {last}", last=len(self.prefixes) - 1)
            allowed = there if self.prefixes else tr("the model has no tasks")
            yield "prompt_learning_task_name_ids", row.task, allowed
            return
        prefix, ids = self._prefix(row), self._input(row)
        if not row.ids and prefix is not None:
            yield "input_lengths", 0, tr("a task needs an input of at least one token")
        if row.output_length < 1:
            yield "request_output_len", row.output_length, tr("allowed: 1 or more")
        front = 0 if prefix is None else len(prefix)
        if front + len(ids) + row.output_length > self.positions:
            needed = tr(
                "{ids} with {new} new tokens after a prefix of {front}",
                ids=len(ids), new=row.output_length, front=front,
            )  # fmt: skip
            yield "input_lengths", needed, tr("the model has {positions} positions", positions=self.positions)
        tokens = {"bad_words_list": row.bad_words, "stop_words_list": row.stop_words}
        for name, words in ({"input_ids" if row.ids else "start_id": [ids]} | tokens).items():
            for token in (token for word in words for token in word if not 0 <= token < self.vocabulary):
                yield name, token, tr("allowed: 0 to {last}", last=self.vocabulary - 1)
        factors = f"{LEAST:g}–{MOST:g}"
        for name, value, good, allowed in (
            ("runtime_top_p", row.top_p, 0 <= row.top_p <= 1, "0–1"),
            ("temperature", row.temperature, LEAST <= row.temperature <= MOST, factors),
            ("repetition_penalty", row.repetition_penalty, LEAST <= row.repetition_penalty <= MOST, factors),
            ("top_p_decay", row.top_p_decay, 0 < row.top_p_decay <= 1, "> 0, ≤ 1"),
            ("top_p_min", row.top_p_min, 0 < row.top_p_min <= 1, "> 0, ≤ 1"),
            ("beam_width", row.beam_width, row.beam_width == 1, "1"),
        ):
            if not good:
                yield name, value, tr("allowed: {allowed}", allowed=allowed)

    def _prefix(self, row: TextRequest) -> torch.Tensor | None:
        return None if row.task is None else self.prefixes[row.task]

    def _input(self, row: TextRequest) -> tuple[int, ...]:
        return row.ids or (self.start_id if row.start_id is None else row.start_id,)

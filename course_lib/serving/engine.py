"""Text generation from an exported folder, as in the FasterTransformer backend.

A batch can mix sequences with different lengths, tasks and sampling settings. Every sequence is checked before any of
them runs, and the error message for an invalid sequence is one line. The prefixes come from the folder. This module
uses neither files nor Triton.

Unlike the course's other generators, the engine does not keep the bytes of a character together
(generation/byte_tokens.py). An exported folder holds no tokenizer, and the engine chooses the same tokens as
FasterTransformer. client.py drops the bytes that form no character when it decodes the answer.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from course_lib.errors import UsageError
from course_lib.serving import beam, sampling
from course_lib.serving.forward import Forward
from course_lib.serving.request import MAX_BEAMS, Answer, Row
from course_lib.serving.sampling import Text

ROWS = 64  # maximum number of texts in one forward pass


class Engine:
    """The model and the prefixes of an exported folder, ready to generate."""

    def __init__(self, loaded: Any, max_length: int | None = None) -> None:
        """Create an engine for a loaded folder.

        Args:
            loaded: the result of reader.load.
            max_length: maximum length including the prefix [tokens]. It replaces the limit of a GPT-NeoX model, but can
                only lower that of a GPT-2 model.
        """
        self.model = loaded.model
        self.prefixes = list(loaded.prefixes)
        self.start_id, self.end_id = loaded.config.start_id, loaded.config.end_id
        self.vocabulary: int = self.model.config.vocab_size
        learned: int = self.model.config.max_position_embeddings
        self.positions = max_length or learned
        if self.model.config.model_type == "gpt2":
            self.positions = min(self.positions, learned)

    @torch.inference_mode()
    def run(self, rows: Sequence[Row], log_probs: bool = False) -> list[Answer]:
        """Return the responses to `rows`, in the same order.

        If `log_probs` is true, the responses include the log probability of each new token. Raises UsageError,
        before any sequence runs, if one of them is invalid.
        """
        for row in rows:
            self.check(row)
        answers: list[Answer] = [Answer([])] * len(rows)
        for indices in _batches(rows):
            batch = [rows[index] for index in indices]
            results = self._beams(batch) if batch[0].beam_width > 1 else self._sample(batch, log_probs)
            for index, row_texts in zip(indices, results, strict=True):
                answers[index] = Answer([text.beam() for text in row_texts])
        return answers

    def check(self, row: Row) -> None:
        """Raise UsageError if a sequence is invalid; the message names the request tensor."""
        for name, value, allowed in self._wrong(row):
            raise UsageError(f"{name}: {value} is not allowed; {allowed}")

    def _wrong(self, row: Row) -> Iterator[tuple[str, object, str]]:
        """Yield (tensor name, value, description of the allowed values) for each problem with a sequence."""
        if row.task is not None and not 0 <= row.task < len(self.prefixes):
            there = f"0 to {len(self.prefixes) - 1}" if self.prefixes else "none, the model has no tasks"
            yield "prompt_learning_task_name_ids", row.task, f"allowed: {there}"
            return
        prefix = self._prefix(row)
        if not row.ids and prefix is not None:
            yield "input_lengths", 0, "a task needs an input of at least one token"
        if row.output_length < 1:
            yield "request_output_len", row.output_length, "allowed: 1 or more"
        front, tokens = 0 if prefix is None else len(prefix), len(self._input(row))
        if front + tokens + row.output_length > self.positions:
            behind = f" after a prefix of {front}" if front else ""
            needed = f"{tokens} with {row.output_length} new tokens{behind}"
            yield "input_lengths", needed, f"the model has {self.positions} positions"
        for name, ids in (
            ("input_ids" if row.ids else "start_id", self._input(row)),
            ("bad_words_list", [token for word in row.bad_words for token in word]),
            ("stop_words_list", [token for word in row.stop_words for token in word]),
        ):
            for token in ids:
                if not 0 <= token < self.vocabulary:
                    yield name, token, f"allowed: 0 to {self.vocabulary - 1}"
        for name, value, good, allowed in (
            ("runtime_top_p", row.top_p, 0 <= row.top_p <= 1, "0 to 1"),
            ("temperature", row.temperature, 0 < row.temperature < torch.inf, "above 0"),
            ("repetition_penalty", row.repetition_penalty, 0 < row.repetition_penalty < torch.inf, "above 0"),
            ("len_penalty", row.len_penalty, abs(row.len_penalty) < torch.inf, "a number"),
            ("top_p_decay", row.top_p_decay, 0 < row.top_p_decay <= 1, "above 0, up to 1"),
            ("top_p_min", row.top_p_min, 0 < row.top_p_min <= 1, "above 0, up to 1"),
            ("beam_width", row.beam_width, 1 <= row.beam_width <= MAX_BEAMS, f"1 to {MAX_BEAMS}"),
            (
                "beam_search_diversity_rate", row.diversity_rate, row.diversity_rate == 0,
                "0: FasterTransformer adds it according to a candidate's index in memory",
            ),
        ):  # fmt: skip
            if not good:
                yield name, value, f"allowed: {allowed}"

    def _prefix(self, row: Row) -> torch.Tensor | None:
        return None if row.task is None else self.prefixes[row.task]

    def _input(self, row: Row) -> tuple[int, ...]:
        return row.ids or (self.start_id if row.start_id is None else row.start_id,)

    def _begin(self, rows: list[Row]) -> tuple[Forward, list[Text]]:
        room = max(row.output_length for row in rows)
        texts = [Text(row, self.end_id if row.end_id is None else row.end_id) for row in rows]
        forward = Forward(self.model, list(map(self._input, rows)), list(map(self._prefix, rows)), room)
        return forward, texts

    def _sample(self, rows: list[Row], log_probs: bool) -> list[list[Text]]:
        forward, texts = self._begin(rows)
        going = texts
        while True:
            sampling.write(forward.logits(), going, log_probs)
            unfinished = [index for index, text in enumerate(going) if not text.finished]
            if not unfinished:
                return [[text] for text in texts]
            # Drop finished texts once they make up at least half of the batch, to avoid computing them
            if len(unfinished) <= len(going) // 2:
                forward.select(unfinished)
                going = [going[index] for index in unfinished]
            forward.add([text.ids[-1] for text in going])

    def _beams(self, rows: list[Row]) -> list[list[Text]]:
        forward, texts = self._begin(rows)
        beams = [[text] for text in texts]
        going = list(range(len(rows)))  # sequences with an unfinished hypothesis
        while True:
            grown, parents = beam.step(forward.logits(), [beams[index] for index in going])
            kept: list[int] = []
            unfinished = []
            for index, hypotheses, lines in zip(going, grown, parents, strict=True):
                beams[index] = hypotheses
                if not all(text.finished for text in hypotheses):
                    unfinished.append(index)
                    kept += lines
            going = unfinished
            if not going:
                return beams
            forward.select(kept)
            forward.add([text.ids[-1] for index in going for text in beams[index]])


def _batches(rows: Sequence[Row]) -> Iterator[list[int]]:
    """Yield the indices for each batch: equal beam width, similar lengths, and at most ROWS texts."""
    key = [(row.beam_width, len(row.ids), row.output_length) for row in rows]
    order = sorted(range(len(rows)), key=key.__getitem__)
    for width, group in groupby(order, lambda index: rows[index].beam_width):
        indices, most = list(group), max(1, ROWS // width)
        yield from (indices[start : start + most] for start in range(0, len(indices), most))

"""Text generation from a folder written by ct2.py: raw Japanese in, raw Japanese out.

With float32 weights, greedy decoding produces the same texts as `course generate` does from the Hugging Face folder.

CTranslate2 accepts no mask on the logits, but byte tokens must form whole characters (generation/byte_tokens.py).
Therefore, a text is kept up to its first token that breaks a character. This token is chosen again among the allowed
ones, from the logits of one CTranslate2 step, and CTranslate2 goes on from there. Each such token costs one more pass
over the text so far.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from numpy.random import Generator as Rng

from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import read_json, require_file
from course_lib.generation import byte_tokens
from course_lib.generation.byte_tokens import MISSING, ROOM
from course_lib.generation.codec import Generated, decode
from course_lib.generation.config import GenerateConfig
from course_lib.pretrain import text_codec

ANY_SEED = (1 << 32) - 1  # CTranslate2's value for "no seed"


class Ct2Generator:
    """A CTranslate2 model that is loaded once and can generate many batches."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        """Load a folder written by `course ct2 export`, or raise CourseError.

        `threads` is per batch; 0 lets CTranslate2 choose.
        """
        try:
            self.tokens: list[str] = json.loads(require_file(folder / "vocabulary.json").read_text(encoding="utf8"))
            self.end = self.tokens.index(read_json(folder / "config.json")["eos_token"])
        except (CourseError, ValueError, KeyError, AttributeError) as error:
            raise CourseError(f"{folder}: not a folder of `course ct2 export`: {error}") from error
        self.folder, self.threads = folder, threads
        self.codec = text_codec.load(folder)
        self.table = byte_tokens.of_tokenizer(self.codec.tokenizer, len(self.tokens))
        self.positions = int(self.codec.tokenizer.model_max_length)
        self._engine = self._open()

    def _open(self) -> Any:
        try:
            return ctranslate2.Generator(str(self.folder), intra_threads=self.threads)
        except (RuntimeError, ValueError) as error:
            raise CourseError(f"{self.folder}: not readable by CTranslate2: {one_line(error)}") from error

    def generate(self, prompts: Sequence[str], settings: GenerateConfig | None = None) -> list[list[Generated]]:
        """Return `num_return_sequences` texts for each raw prompt; an empty prompt starts a new document."""
        ids = [self.codec.encode(prompt) for prompt in prompts]
        continuations = self.continue_ids([row or [self.end] for row in ids], settings)
        return [decode(self.codec, *row, self.end) for row in zip(prompts, ids, continuations, strict=True)]

    def continue_ids(
        self, rows: Sequence[Sequence[int]], settings: GenerateConfig | None = None
    ) -> list[list[list[int]]]:
        """Return `num_return_sequences` lists of new ids for each input sequence, without the end-of-text token."""
        settings = settings or GenerateConfig()
        _require_possible(settings)
        rooms = [settings.room(len(row), self.positions) for row in rows]
        with self._seeded(settings):
            rng = np.random.default_rng(settings.seed)
            continuations = self._generate([*map(list, rows)], rooms, settings)
            return [
                [self._whole(list(row), text, room, settings, rng) for text in texts]
                for row, room, texts in zip(rows, rooms, continuations, strict=True)
            ]

    def _generate(self, rows: list[list[int]], rooms: list[int], settings: GenerateConfig) -> list[list[list[int]]]:
        """Return continuations for each row, as CTranslate2 chooses them, without the end-of-text token.

        `rooms` are the maximum lengths of the rows' continuations [tokens].
        """
        options: dict[str, Any] = {"min_length": settings.min_new_tokens}
        if settings.strategy == "sampling":
            options |= {"sampling_topk": min(settings.top_k, len(self.tokens)), "sampling_topp": settings.top_p}
            options["sampling_temperature"] = settings.temperature
            options["num_hypotheses"] = settings.num_return_sequences
        # Batch sequences of one id separately: in a mixed batch, CTranslate2 repeats the prompts of all other sequences
        key = [(room, len(row) == 1) for row, room in zip(rows, rooms, strict=True)]
        continuations: list[list[list[int]]] = [[]] * len(rows)
        for (room, _), batch in groupby(sorted(range(len(rows)), key=key.__getitem__), key.__getitem__):
            numbers = list(batch)
            prompts = [[self.tokens[token] for token in rows[number]] for number in numbers]
            results = self._engine.generate_batch(prompts, include_prompt_in_result=False, max_length=room, **options)
            for number, result in zip(numbers, results, strict=True):
                continuations[number] = result.sequences_ids
        return continuations

    def _whole(self, row: list[int], text: list[int], room: int, settings: GenerateConfig, rng: Rng) -> list[int]:
        """Return a continuation of `row` in which the tokens that break a character are replaced, and what follows."""
        while True:
            # A text shorter than its room has ended, and the end-of-text token must not break a character either.
            wrong = self.table.first_wrong(row, [*text, self.end] if len(text) < room else text, room)
            if wrong is None:
                return text
            text, inside = text[:wrong], True
            while inside:
                goes_on = len(text) < settings.min_new_tokens
                text.append(self._choose(row + text, room - len(text), goes_on, settings, rng))
                inside = MISSING[self.table.state(row + text, room - len(text))] > 0
            if text[-1] == self.end:
                return text[:-1]
            if left := room - len(text):
                least = max(settings.min_new_tokens - len(text), 0)
                one = replace(settings, max_new_tokens=left, min_new_tokens=least, num_return_sequences=1)
                text += self._generate([row + text], [left], one)[0][0]

    def _choose(self, ids: list[int], room: int, goes_on: bool, settings: GenerateConfig, rng: Rng) -> int:
        """Return the token after `ids`, chosen among those that may follow; not the end of the text if it `goes_on`."""
        prompt = [[self.tokens[token] for token in ids]]
        options = {"include_prompt_in_result": False, "max_length": 1, "return_logits_vocab": True}
        (result,) = self._engine.generate_batch(prompt, **options)
        logits = np.array(result.logits[0][0], np.float64).ravel()
        logits[self.table.blocked[min(room, ROOM) - 1, self.table.state(ids, room)]] = -np.inf
        if goes_on:
            logits[self.end] = -np.inf
        if settings.strategy == "greedy":
            return int(logits.argmax())
        best = np.argsort(-logits)[: settings.top_k or None]
        shares = np.exp((logits[best] - logits[best[0]]) / settings.temperature)
        # The most likely tokens whose shares reach top_p
        kept = int(np.searchsorted(shares.cumsum() / shares.sum(), settings.top_p)) + 1
        return int(rng.choice(best[:kept], p=shares[:kept] / shares[:kept].sum()))

    @contextmanager
    def _seeded(self, settings: GenerateConfig) -> Iterator[None]:
        """Set CTranslate2's seed inside the context, so that the same seed gives the same texts.

        CTranslate2 reads the seed when a thread first samples, so the model is reopened for each seed.
        """
        if settings.strategy != "sampling":
            yield
            return
        self._engine = self._open()
        ctranslate2.set_random_seed(ANY_SEED if settings.seed is None else settings.seed)
        try:
            yield
        finally:
            ctranslate2.set_random_seed(ANY_SEED)


def _require_possible(settings: GenerateConfig) -> None:
    """Raise UsageError if CTranslate2 does not support a setting or interprets it differently from transformers."""
    wrong = {
        "strategy": settings.strategy == "beam",
        # CTranslate2 applies the penalty only to new tokens
        "repetition_penalty": settings.repetition_penalty != 1,
        "no_repeat_ngram_size": settings.no_repeat_ngram_size,
    }
    for name in (name for name, refused in wrong.items() if refused):
        raise UsageError(f"{name}: {getattr(settings, name)} is not allowed here; `course generate` takes it")

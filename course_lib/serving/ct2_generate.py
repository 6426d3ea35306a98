"""Text generation from a folder written by ct2.py: raw Japanese in, raw Japanese out.

With float32 weights, greedy decoding chooses the same tokens as transformers does from the Hugging Face folder.
CTranslate2 accepts no mask on the logits, so byte tokens that form no character are dropped (byte_tokens.py).
"""

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2

from course_lib.checkpoints.model_folder import GENERATION, generation_defaults
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import read_json, require_file
from course_lib.generation import byte_tokens
from course_lib.generation.codec import Generated, decode, require_rows
from course_lib.generation.config import GenerateConfig
from course_lib.pretrain import text_codec

ANY_SEED = (1 << 32) - 1  # CTranslate2's value for "no seed"


class Ct2Generator:
    """A CTranslate2 model that is loaded once and can generate many batches."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        """Load a folder written by `course ct2 export`; `threads` is per batch, 0 for CTranslate2's choice."""
        self.tokens = _vocabulary(folder / "vocabulary.json")
        if (end := read_json(folder / "config.json").get("eos_token")) not in self.tokens:
            raise CourseError(f"{folder / 'config.json'}: eos_token is {end!r}; allowed: an entry of vocabulary.json")
        self.end = self.tokens.index(end)
        self.folder, self.threads = folder, threads
        self.codec = text_codec.load(folder)
        self.own = generation_defaults(folder)
        self.table = byte_tokens.of_tokenizer(self.codec.tokenizer, len(self.tokens))
        self.positions = int(self.codec.tokenizer.model_max_length)
        ends = [end for end in self.codec.ends if end < len(self.tokens)]
        self.ends = ends or [self.end]
        self._engine = self._open()

    def _open(self) -> Any:
        try:
            return ctranslate2.Generator(str(self.folder), intra_threads=self.threads)
        except (RuntimeError, ValueError) as error:
            raise CourseError(f"{self.folder}: not readable by CTranslate2: {one_line(error)}") from error

    def completed(self, settings: GenerateConfig | None = None) -> GenerateConfig:
        """Return the settings with what they leave unset: the model's own value, or the default."""
        return (settings or GenerateConfig()).completed(self.own, self.folder / GENERATION)

    def generate(self, prompts: Sequence[str], settings: GenerateConfig | None = None) -> list[list[Generated]]:
        """Return `num_return_sequences` texts for each raw prompt; an empty prompt starts a new document."""
        ids = [require_rows(self.codec, self.codec.encode(prompt), len(self.tokens)) for prompt in prompts]
        continuations = self.continue_ids([[*self.codec.opening, *row] or [self.end] for row in ids], settings)
        return [
            decode(self.codec, prompt, row, list(map(self.table.whole, texts)), *self.ends)
            for prompt, row, texts in zip(prompts, ids, continuations, strict=True)
        ]

    def continue_ids(
        self, rows: Sequence[Sequence[int]], settings: GenerateConfig | None = None
    ) -> list[list[list[int]]]:
        """Return `num_return_sequences` lists of new ids for each input sequence, without the end-of-text token."""
        settings = self.completed(settings)
        _require_possible(settings)
        options: dict[str, Any] = {"min_length": settings.min_new_tokens, "end_token": self.ends}
        if settings.strategy == "sampling":
            options |= {"sampling_topk": min(settings.top_k or 0, len(self.tokens)), "sampling_topp": settings.top_p}
            options["sampling_temperature"] = settings.temperature
            options["num_hypotheses"] = settings.num_return_sequences
            # CTranslate2 reads the seed when a thread first samples, so the model is opened again
            ctranslate2.set_random_seed(ANY_SEED if settings.seed is None else settings.seed)
            self._engine = self._open()
        # Batch sequences of one id separately: in a mixed batch, CTranslate2 repeats the prompts of all other sequences
        key = [(settings.longest_continuation(len(row), self.positions), len(row) == 1) for row in rows]
        continuations: list[list[list[int]]] = [[]] * len(rows)
        order = sorted(range(len(rows)), key=key.__getitem__)
        for (longest, _), batch in groupby(order, key.__getitem__):
            numbers = list(batch)
            prompts = [[self.tokens[token] for token in rows[number]] for number in numbers]
            results = self._engine.generate_batch(
                prompts, include_prompt_in_result=False, max_length=longest, **options
            )
            for number, result in zip(numbers, results, strict=True):
                continuations[number] = result.sequences_ids
        return continuations

    def score(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log probability of each id behind the first of each row."""
        tokens = [[self.tokens[token] for token in row] for row in rows]
        return [result.log_probs for result in self._engine.score_batch(tokens)]


def _vocabulary(path: Path) -> list[str]:
    """Return the tokens of a vocabulary.json by their ids."""
    try:
        tokens = json.loads(require_file(path).read_text(encoding="utf8"))
    except (ValueError, RecursionError) as error:
        raise CourseError(f"{path}: not readable as JSON: {one_line(error)}") from error
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise CourseError(f"{path}: not a list of tokens")
    return tokens


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

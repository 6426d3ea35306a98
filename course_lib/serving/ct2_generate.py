"""Text generation from a folder written by ct2.py: raw Japanese in, raw Japanese out.

With float32 weights, greedy decoding produces the same texts as `course generate` does from the Hugging Face folder.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2

from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import read_json, require_file
from course_lib.generation.codec import Generated, decode
from course_lib.generation.config import GenerateConfig
from course_lib.pretrain import text_codec

ANY_SEED = (1 << 32) - 1  # CTranslate2's value for "no seed"


class Ct2Generator:
    """A CTranslate2 model that is loaded once and can generate many batches."""

    def __init__(self, folder: Path, threads: int = 0, compute: str = "default", device: str = "cpu") -> None:
        """Load a folder written by `course ct2 export`.

        Args:
            folder: the exported folder.
            threads: threads per batch; 0 lets CTranslate2 choose.
            compute: data type for the computation, such as int8 or float32; the default is that of the stored weights.
            device: cpu or cuda.

        Raises:
            CourseError: if the folder was not written by `course ct2 export`.
        """
        try:
            self.tokens: list[str] = json.loads(require_file(folder / "vocabulary.json").read_text(encoding="utf8"))
            self.end = self.tokens.index(read_json(folder / "config.json")["eos_token"])
        except (CourseError, ValueError, KeyError, AttributeError) as error:
            raise CourseError(f"{folder}: not a folder of `course ct2 export`: {error}") from error
        self.folder = folder
        self.codec = text_codec.load(folder)
        self.positions = int(self.codec.tokenizer.model_max_length)
        self.options = {"device": device, "compute_type": compute, "intra_threads": threads}
        self._engine = self._open()
        # Whether the engine has already sampled and thus read its seed
        self._drawn = False

    def _open(self) -> Any:
        try:
            return ctranslate2.Generator(str(self.folder), **self.options)
        except (RuntimeError, ValueError) as error:
            raise CourseError(f"{self.folder}: not readable by CTranslate2: {one_line(error)}") from error

    def generate(self, prompts: Sequence[str], settings: GenerateConfig | None = None) -> list[list[Generated]]:
        """Return `num_return_sequences` texts for each raw prompt; an empty prompt starts a new document.

        Raises UsageError if CTranslate2 does not support a setting, or if a text is longer than the model's maximum
        sequence length.
        """
        ids = [self.codec.encode(prompt) for prompt in prompts]
        continuations = self.continue_ids([row or [self.end] for row in ids], settings)
        return [decode(self.codec, *row, self.end) for row in zip(prompts, ids, continuations, strict=True)]

    def continue_ids(
        self, rows: Sequence[Sequence[int]], settings: GenerateConfig | None = None
    ) -> list[list[list[int]]]:
        """Return `num_return_sequences` lists of new ids for each input sequence, without the end-of-text token."""
        settings = settings or GenerateConfig()
        _require_possible(settings)
        # Batch sequences of one id separately: in a mixed batch, CTranslate2 repeats the prompts of all other sequences
        key = [(settings.room(len(row), self.positions), len(row) == 1) for row in rows]
        continuations: list[list[list[int]]] = [[]] * len(rows)
        with self._seeded(settings):
            for (room, _), batch in groupby(sorted(range(len(rows)), key=key.__getitem__), key.__getitem__):
                numbers = list(batch)
                for number, texts in zip(numbers, self._batch([rows[n] for n in numbers], room, settings), strict=True):
                    continuations[number] = texts
        return continuations

    def _batch(self, rows: Sequence[Sequence[int]], room: int, settings: GenerateConfig) -> list[list[list[int]]]:
        options: dict[str, Any] = {"max_length": room, "min_length": settings.min_new_tokens}
        if settings.strategy == "sampling":
            options |= {"sampling_topk": min(settings.top_k, len(self.tokens)), "sampling_topp": settings.top_p}
            options["sampling_temperature"] = settings.temperature
            options["num_hypotheses"] = settings.num_return_sequences
        prompts = [[self.tokens[number] for number in row] for row in rows]
        results = self._engine.generate_batch(prompts, include_prompt_in_result=False, **options)
        return [result.sequences_ids for result in results]

    @contextmanager
    def _seeded(self, settings: GenerateConfig) -> Iterator[None]:
        """Set CTranslate2's seed inside the context, so that the same seed gives the same texts.

        CTranslate2 reads the seed when a thread first samples, so the model must be reopened for each later seed.
        """
        if settings.strategy != "sampling":
            yield
            return
        if self._drawn:
            self._engine = self._open()
        self._drawn = True
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

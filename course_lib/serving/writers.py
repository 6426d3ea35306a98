"""A model and its writers, the prefixes beside it: all continue one prompt, a token of each in every forward pass."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from course_lib.generation import byte_tokens
from course_lib.generation.codec import decode, require_rows
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.prefix import files
from course_lib.pretrain import text_codec
from course_lib.serving.engine import Generation, Slots, TextBatch, adjust
from course_lib.serving.request import RequestRow

# Next tokens that are shown.
SHOWN = 8
# The settings of a text that the engine knows.
SETTINGS = ("top_k", "top_p", "temperature", "repetition_penalty", "seed")


class Writers:
    """A model without a prefix and with each of those beside it; one forward pass at a time."""

    def __init__(self, folder: Path) -> None:
        """Load the model and its prefixes. Raises CourseError if one does not belong to the model."""
        self.folder, self.lock = folder, Lock()
        self.generator = Generator(folder, text_codec.load)
        self.prefixes = {name: files.read(path) for name, path in files.beside(folder).items()}
        for prefix in self.prefixes.values():
            self.generator.require(prefix)
        self.table = byte_tokens.of_tokenizer(self.generator.codec.tokenizer, self.generator.rows)

    def write(self, prompt: str, settings: GenerateConfig) -> Iterator[list[str]]:
        """Yield the texts so far after each token: that without a prefix, and one for each prefix.

        All draw with the same random numbers, so that they differ by their prefix alone.
        """
        texts, batch = self._begun(prompt, settings), TextBatch(self.generator.model)
        # Not around the yield: the caller may go on in another thread, or never.
        with self.lock:
            batch.join(texts)
        yield self._so_far(prompt, texts)
        while batch.running:
            with self.lock:
                batch.step()
            yield self._so_far(prompt, texts)

    def next_tokens(self, prompt: str, settings: GenerateConfig) -> list[dict[str, float]]:
        """Return the likeliest next tokens and the probability that each is drawn: without a prefix, and for each."""
        texts = self._begun(prompt, settings)
        with self.lock, torch.inference_mode():
            slots = Slots(self.generator.model)
            logits = slots.prefill([text.prompt for text in texts], [text.prefix for text in texts])
            scores = adjust(logits, texts)
        row = texts[0].row
        best = scores.topk(row.top_k or scores.shape[1])
        # As the engine draws: of the top_k tokens, those up to the share top_p of their probability.
        mass = best.values.softmax(-1).cumsum(-1).clamp(max=row.top_p) / row.top_p
        chances = mass.diff(prepend=torch.zeros_like(mass[:, :1]))[:, :SHOWN].tolist()
        found: list[dict[str, float]] = []
        for text, tokens, of_tokens in zip(texts, best.indices[:, :SHOWN].tolist(), chances, strict=True):
            names = [token_name(self.generator, text.prompt, token) for token in tokens]
            found.append({name: chance for name, chance in zip(names, of_tokens, strict=True) if chance})
        return found

    def _begun(self, prompt: str, settings: GenerateConfig) -> list[Generation]:
        """Return a text to continue without a prefix, and one for each. Raises UsageError if the prompt is too long."""
        settings = self.generator.completed(settings)
        chosen: dict[str, Any] = {name: getattr(settings, name) for name in SETTINGS}
        if settings.seed is None:
            chosen["seed"] = random.getrandbits(32)
        codec, positions = self.generator.codec, self.generator.model.config.max_position_embeddings
        ids, texts = require_rows(codec, codec.encode(prompt), self.generator.rows), []
        for prefix in (None, *self.prefixes.values()):
            # As the generator does: the token before each text of the base is not before those of a prefix.
            read = tuple([*codec.opening, *ids] if prefix is None else ids) or (self.generator.begin,)
            length = settings.longest_continuation(len(read) + len(prefix or ()), positions)
            row, values = RequestRow(read, length, **chosen), prefix.values if prefix else None
            texts.append(Generation(row, self.generator.end, read, values))
        return texts

    def _so_far(self, prompt: str, texts: list[Generation]) -> list[str]:
        """Return the texts with their prompt. The bytes of a character are held back until it is whole."""
        codec = self.generator.codec
        ids = codec.encode(prompt)
        new = [self.table.whole(text.ids[len(text.prompt) :]) for text in texts]
        return [text.text for text in decode(codec, prompt, ids, new, *self.generator.ends)]


def token_name(generator: Generator, ids: Sequence[int], token: int) -> str:
    """Return what a token adds to the text of `ids`, or its name: of the end of a text, or a byte of a character."""
    added = "" if token in generator.ends else generator.codec.continuation([*ids], [token])
    return added.strip("\ufffd").replace("\n", "↵") or str(generator.codec.tokenizer.convert_ids_to_tokens(token))

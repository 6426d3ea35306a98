"""Generates text with a causal language model; input and output are raw Japanese.

If the model folder has the course's preparation.json, the prompt is normalized and segmented like the training text.
Any other Hugging Face model gets the prompt unchanged. `generate` of transformers does the generation itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from course_lib.checkpoints import model_folder
from course_lib.checkpoints.quiet import quiet
from course_lib.errors import CourseError, UsageError
from course_lib.pretrain import text_codec
from course_lib.pretrain.generation import MAX_NEW_TOKENS, GenerateConfig


@dataclass(frozen=True)
class Generated:
    """A generated text: the prompt after normalization, and its continuation."""

    prompt: str
    continuation: str

    @property
    def text(self) -> str:
        """The prompt followed by its continuation."""
        return self.prompt + self.continuation


class Generator:
    """A loaded model for text generation, in its stored number format, on the GPU if there is one."""

    def __init__(self, folder: Path) -> None:
        """Loads a model folder. Raises CourseError if it lacks a causal language model or its tokenizer."""
        model_folder.read_config(folder)
        # The tokenizer is loaded first, so that a bad one fails early: loading the model can take minutes.
        self.codec = text_codec.load(folder)
        model = model_folder.load_model(folder)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.end = self._end(folder)
        self.begin = self.end if self.codec.begin is None else self.codec.begin
        # Drops the folder's own generation defaults, which would fill in what GenerateConfig leaves unset.
        self.model.generation_config = GenerationConfig(eos_token_id=self.end, pad_token_id=self.end)

    def _end(self, folder: Path) -> int:
        """The id of the end-of-text token."""
        ends = self.model.generation_config.eos_token_id, self.codec.tokenizer.eos_token_id
        end = model_folder.end_id(folder, *ends)
        if end is None:
            raise CourseError(f"{folder}: names no end-of-text token (eos_token_id)")
        return end

    @property
    def positions(self) -> int | None:
        """The model's longest sequence [tokens]; None if there is no limit."""
        positions: int | None = getattr(self.model.config, "max_position_embeddings", None)
        return positions

    def generate(self, prompt: str, settings: GenerateConfig | None = None) -> list[Generated]:
        """Generates `num_return_sequences` continuations of `prompt`; beam search returns the best one first.

        An empty prompt generates a new document. Raises UsageError if prompt and continuation exceed the model's
        positions.
        """
        settings = settings or GenerateConfig()
        ids = self.codec.encode(prompt)
        arguments = self._arguments(settings, self._room(len(ids) or 1, settings))
        inputs = torch.tensor([ids or [self.begin]], device=self.device)
        with torch.inference_mode(), quiet(), seeded(settings.seed, self.device):
            outputs = self.model.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=arguments)
        shown = self.codec.shown(prompt)
        return [Generated(shown, self._continuation(ids, row[inputs.shape[1] :])) for row in outputs.tolist()]

    def _room(self, prompt: int, settings: GenerateConfig) -> int:
        """The longest continuation [tokens] for a prompt of `prompt` tokens."""
        wanted = settings.max_new_tokens
        if self.positions is None:
            return wanted or max(MAX_NEW_TOKENS, settings.min_new_tokens)
        left = self.positions - prompt
        if left < 1:
            raise UsageError(
                f"prompt: {prompt} tokens are not allowed: the model has {self.positions} positions, "
                "and at least one must be left for the continuation"
            )
        for name, value in (("max_new_tokens", wanted), ("min_new_tokens", settings.min_new_tokens)):
            if value and value > left:
                raise UsageError(
                    f"{name}: {value} is not allowed: {self.positions} positions less the prompt's {prompt} tokens "
                    f"leave {left}"
                )
        return wanted or min(max(MAX_NEW_TOKENS, settings.min_new_tokens), left)

    def _arguments(self, settings: GenerateConfig, room: int) -> GenerationConfig:
        """The settings as arguments of transformers; `room` is the longest continuation [tokens]."""
        sampling = settings.strategy == "sampling"
        chosen: dict[str, Any] = (
            {"top_k": settings.top_k, "top_p": settings.top_p, "temperature": settings.temperature} if sampling else {}
        )
        if settings.strategy == "beam":
            chosen |= {"length_penalty": settings.length_penalty, "early_stopping": settings.early_stopping}
        rows, known = self.model.config.vocab_size, len(self.codec)
        return GenerationConfig(
            do_sample=sampling,
            num_beams=settings.beams,
            num_return_sequences=settings.num_return_sequences,
            max_new_tokens=room,
            min_new_tokens=settings.min_new_tokens,
            repetition_penalty=settings.repetition_penalty,
            no_repeat_ngram_size=settings.no_repeat_ngram_size,
            eos_token_id=self.end,
            pad_token_id=self.end,
            # Rows of a padded vocabulary that are not tokens.
            suppress_tokens=list(range(known, rows)) or None,
            **chosen,
        )

    def _continuation(self, prompt: list[int], new: list[int]) -> str:
        """The text of the generated ids `new`, up to the first end-of-text token."""
        return self.codec.continuation(prompt, new[: new.index(self.end)] if self.end in new else new)


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """A context with torch's random generators seeded by `seed`, or randomly if it is None.

    Afterwards the generators of the CPU and of the current GPU continue from their earlier state.
    """
    with torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else []):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        yield


def generate(model_folder: Path, prompt: str, settings: GenerateConfig | None = None) -> list[str]:
    """Generates texts that begin with the normalized `prompt`.

    Raises CourseError for an unreadable model folder, and UsageError if prompt and continuation are too long.
    """
    return [generated.text for generated in Generator(model_folder).generate(prompt, settings)]

"""Text from a trained model: raw Japanese in, raw Japanese out.

A folder with preparation.json (ours) has its prompt normalized and segmented as its training text was; any other folder of a Hugging Face
causal language model takes the prompt as it stands. Generating itself is `transformers`' own `generate`.
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
    """One text: the prompt in its normal form, and how it goes on."""

    prompt: str
    continuation: str

    @property
    def text(self) -> str:
        """Prompt and continuation."""
        return self.prompt + self.continuation


class Generator:
    """A model loaded once, in the number format it is stored in, on the GPU if there is one."""

    def __init__(self, folder: Path) -> None:
        """Raises CourseError for a folder that holds no causal language model with its tokenizer."""
        model_folder.read_config(folder)
        # Before the model, which may take minutes.
        self.codec = text_codec.load(folder)
        model = model_folder.load_model(folder)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.end = self._end(folder)
        self.begin = self.end if self.codec.begin is None else self.codec.begin
        # What the folder recommends must not fill in what our settings leave out.
        self.model.generation_config = GenerationConfig(eos_token_id=self.end, pad_token_id=self.end)

    def _end(self, folder: Path) -> int:
        """The id that ends a document."""
        ends = self.model.generation_config.eos_token_id, self.codec.tokenizer.eos_token_id
        end = model_folder.end_id(folder, *ends)
        if end is None:
            raise CourseError(f"{folder}: names no end-of-text token (eos_token_id)")
        return end

    @property
    def positions(self) -> int | None:
        """Longest text the model can hold [tokens]; None without a limit."""
        found: int | None = getattr(self.model.config, "max_position_embeddings", None)
        return found

    def generate(self, prompt: str, settings: GenerateConfig | None = None) -> list[Generated]:
        """`num_return_sequences` texts that begin with `prompt`, best first under beam search.

        An empty prompt begins a document. Raises UsageError if prompt and continuation do not fit the model's positions.
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
        """Tokens of the longest continuation of a prompt of so many."""
        wanted = settings.max_new_tokens
        if self.positions is None:
            return wanted or max(MAX_NEW_TOKENS, settings.min_new_tokens)
        left = self.positions - prompt
        if left < 1:
            raise UsageError(
                f"prompt: {prompt} tokens are not allowed: the model has {self.positions} positions, one at least must be left"
            )
        for name, value in (("max_new_tokens", wanted), ("min_new_tokens", settings.min_new_tokens)):
            if value and value > left:
                raise UsageError(
                    f"{name}: {value} is not allowed: {self.positions} positions less the prompt's {prompt} tokens leave {left}"
                )
        return wanted or min(max(MAX_NEW_TOKENS, settings.min_new_tokens), left)

    def _arguments(self, settings: GenerateConfig, room: int) -> GenerationConfig:
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
            suppress_tokens=list(range(known, rows)) or None,  # rows of a padded vocabulary that are no token
            **chosen,
        )

    def _continuation(self, prompt: list[int], new: list[int]) -> str:
        """The text of `new` up to the end of its document."""
        return self.codec.continuation(prompt, new[: new.index(self.end)] if self.end in new else new)


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Random numbers from `seed`, or from anywhere; the caller's generator goes on as if nothing had been drawn."""
    with torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else []):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        yield


def generate(model_folder: Path, prompt: str, settings: GenerateConfig | None = None) -> list[str]:
    """Texts that begin with `prompt`, in its normal form. Raises CourseError and UsageError as Generator does."""
    return [generated.text for generated in Generator(model_folder).generate(prompt, settings)]

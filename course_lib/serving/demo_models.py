"""The profile's models for the page of `course demo`: a GPT-2, its prefixes and a GPTSAN whose genres can be mixed."""

from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import cast

import torch
from torch import Tensor

from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Prefix
from course_lib.gptsan import config as gptsan_config
from course_lib.gptsan import products as gptsan
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.prefix import files
from course_lib.prefix import products as prefix
from course_lib.prefix.config import FILE
from course_lib.pretrain import text_codec
from course_lib.serving.writers import SHOWN, token_name
from course_lib.workspace import products

# Tokens of one continuation.
LENGTH = 80
# The page's controls decide, not the model's own settings: the next tokens that it shows know no penalty.
WRITING = GenerateConfig(
    strategy="sampling", max_new_tokens=LENGTH, top_p=1.0, repetition_penalty=1.0, no_repeat_ngram_size=0, seed=None
)


class Mixed(GPTSanGenerator):
    """A GPTSAN whose spout gets shares of several classes instead of one."""

    shares: Tensor

    def spout(self, wanted: int | str, texts: int, rng: torch.Generator) -> Tensor | None:
        """Return the shares as the input to the spout: [1, d_spout]."""
        return self.shares

    def write(self, weights: list[float], temperature: float) -> str:
        """Return a new text. The weights, one a class, are divided by their sum; without any, all count alike."""
        shares = torch.tensor(weights) if any(weights) else torch.ones(len(weights))
        unused = self.config.d_spout - len(weights)
        self.shares = torch.cat([shares / shares.sum(), torch.zeros(unused)])[None].to(self.device)
        how = gptsan_config.GenerateConfig(seed=None, max_new_tokens=3 * LENGTH, top_k=0, temperature=temperature)
        return self.continue_text("", how)[0].strip()


class Models:
    """The models of the profile, each loaded when it is first needed; one request at a time."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.genres = gptsan.class_names()
        self.task_names = list(prefix.task_settings())

    @cached_property
    def gpt2(self) -> Generator:
        """Chapter 4's GPT-2, or the published model that the profile names."""
        return Generator(prefix.base().path() / "model", text_codec.load)

    @cached_property
    def tasks(self) -> dict[str, Prefix]:
        """The prefixes of chapter 6, by task name."""
        return {name: files.read(prefix.task(name).path() / FILE) for name in self.task_names}

    @cached_property
    def gptsan(self) -> Mixed:
        """Chapter 5's GPTSAN."""
        return cast(Mixed, Mixed.open(gptsan.TUNED.path() / gptsan.MODEL))

    def missing(self) -> list[str]:
        """Return the names of the products that are to be built first: missing ones and stale ones."""
        states = products.states([prefix.base(), *prefix.tasks(), gptsan.TUNED])
        return [name for name, state in states.items() if state.kind != "fresh"]

    def next_tokens(self, text: str, temperature: float, top_k: int) -> dict[str, float]:
        """Return the likeliest next tokens of a text and their probabilities; top_k 0: of all tokens."""
        with self.lock:
            model = self.gpt2
            ids = [*model.codec.opening, *model.codec.encode(text)] or [model.begin]
            limit = getattr(model.model.config, "max_position_embeddings", None) or len(ids)
            read = torch.tensor([ids[-limit:]], device=model.device)
            with torch.inference_mode():
                logits = model.model(read, attention_mask=torch.ones_like(read)).logits[0, -1].float()
        likeliest = logits[: len(model.codec)].topk(top_k or len(model.codec))
        chances = (likeliest.values / temperature).softmax(-1)[:SHOWN].tolist()
        names = [token_name(model, ids, each) for each in likeliest.indices[:SHOWN].tolist()]
        return dict(zip(names, chances, strict=True))

    def continue_text(self, text: str, temperature: float, top_k: int) -> str:
        """Return a text with a sampled continuation."""
        how = replace(WRITING, top_k=top_k, temperature=temperature)
        with self.lock:
            return self.gpt2.generate([text], self._fitting(text, how))[0][0].text

    def answers(self, text: str) -> list[str]:
        """Return the greedy continuation of the base, and the answer with the prefix of each task."""
        with self.lock:
            how = self._fitting(text, replace(WRITING, strategy="greedy"))
            rows = self.gpt2.generate([text] * (1 + len(self.tasks)), how, [None, *self.tasks.values()])
        return [row[0].continuation.strip() for row in rows]

    def written(self, weights: list[float], temperature: float) -> str:
        """Return a text of GPTSAN for these weights of the genres."""
        with self.lock:
            return self.gptsan.write(weights, temperature)

    def _fitting(self, text: str, how: GenerateConfig) -> GenerateConfig:
        """Return the settings with a length for which the positions suffice, if the text leaves any."""
        limit = getattr(self.gpt2.model.config, "max_position_embeddings", None)
        longest = max((len(one.values) for one in self.tasks.values()), default=0)
        codec = self.gpt2.codec
        left = limit - longest - (len(codec.opening) + len(codec.encode(text)) or 1) if limit else LENGTH
        return replace(how, max_new_tokens=max(1, min(LENGTH, left)))

"""Text generation with one causal language model and any number of prefixes. Each prompt has its own prefix or none.

The `generate` method of transformers receives the prefixes as the key/value cache, the attention mask for prefixes and
texts, and the position ids of the texts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from course_lib.checkpoints import compute, model_folder, weight_files
from course_lib.checkpoints.quiet import quiet
from course_lib.errors import CourseError
from course_lib.generation import byte_tokens
from course_lib.generation.character_mask import CharacterMask, WholeCharacters
from course_lib.generation.codec import Codec, Generated, decode, require_rows
from course_lib.generation.config import GenerateConfig
from course_lib.generation.prefix_cache import Prefix, Shape, learned_positions, left_padded, past, positions
from course_lib.language.words import tr
from course_lib.models import frozen_base

# Weights in half precision up to this size [bytes] are converted to fp32 on a CPU: one without avx512_bf16 takes
# 4.5 times as long in bf16 (25 M parameters), and each processor would write another text for a seed.
SMALL = 10**9


@dataclass(frozen=True)
class _Prompt:
    """A prompt in a batch. `index` is its position in the result, `max_new_tokens` that of its longest continuation."""

    index: int
    text: str
    ids: list[int]  # of the text
    read: list[int]  # by the model: also what precedes the text
    prefix: Tensor | None
    max_new_tokens: int


class Generator:
    """A model loaded for text generation, on the GPU if there is one."""

    def __init__(
        self,
        folder: Path,
        load_codec: Callable[[Path], Codec],
        any_base: bool = False,
        dtype: torch.dtype | str = "auto",
    ) -> None:
        """Load a causal language model; `any_base` accepts prefixes trained on other weights of its shape.

        The dtype "auto" is that of the stored weights; on a CPU, half precision up to SMALL becomes fp32. What the
        folder's generation_config.json says of sampling holds where the settings of a text leave it unset.
        """
        model_folder.read_config(folder)
        # Load the tokenizer first, so that a bad one fails early; loading the model can take minutes.
        self.codec = load_codec(folder)
        model = model_folder.load_model(folder, dtype)
        self.own = model_folder.generation_defaults(folder)
        self.folder, self.any_base = folder, any_base
        # Digests of this base that prefixes recorded.
        self.digests: set[str] = set()
        self.device = torch.device(compute.device())
        is_half = model.dtype in (torch.bfloat16, torch.float16)
        stored = sum(path.stat().st_size for path in weight_files.files(folder))
        if dtype == "auto" and self.device.type == "cpu" and is_half and stored <= SMALL:
            model = model.float()
        self.model = model.to(self.device)
        self.rows = int(model.config.vocab_size)
        ends = model_folder.end_ids(model.generation_config.eos_token_id, self.codec.tokenizer.eos_token_id)
        # Each of them ends a text; one without an embedding is never written.
        self.ends = [end for end in ends if 0 <= end < self.rows]
        if not self.ends:
            raise CourseError(tr("{folder}: names no end-of-text token (eos_token_id)", folder=folder))
        self.end = end = self.ends[0]
        self.begin = end if self.codec.begin is None else self.codec.begin
        # transformers would read the folder's own values from here; `completed` takes those that count.
        self.model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end)

    @cached_property
    def characters(self) -> CharacterMask | None:
        """The mask that keeps characters whole, or None if no token is a part of a character."""
        table = byte_tokens.of_tokenizer(self.codec.tokenizer, self.rows)
        return CharacterMask(table, self.device) if table.has_bytes else None

    @cached_property
    def not_tokens(self) -> list[int]:
        """Ids in a padded vocabulary that are not tokens."""
        return sorted(set(range(self.rows)) - set(self.codec.tokenizer.get_vocab().values()))

    @cached_property
    def shape(self) -> Shape:
        """The shape of the model's prefixes."""
        return Shape.of(frozen_base.read_config(self.folder))

    def require(self, prefix: Prefix) -> None:
        """Raise CourseError if a prefix does not belong to the model; its base is read only if the prefix names one."""
        known = self.any_base or not prefix.base or prefix.base in self.digests
        base = "" if known else frozen_base.digest(self.folder, prefix.base)
        prefix.require(self.shape, base)
        self.digests.add(base)

    def completed(self, settings: GenerateConfig | None = None) -> GenerateConfig:
        """Return the settings with what they leave unset: the model's own value, or the default."""
        return (settings or GenerateConfig()).completed(self.own, self.folder / model_folder.GENERATION)

    def generate(
        self,
        prompts: Sequence[str],
        settings: GenerateConfig | None = None,
        prefixes: Sequence[Prefix | None] | None = None,
    ) -> list[list[Generated]]:
        """Return `num_return_sequences` texts for each raw prompt; beam search returns the best one first.

        An empty prompt starts a new document. If the course trained the base on documents, each of which begins with
        `</s>`, so does a prompt without a prefix; prefixes are trained without it. Byte tokens always form whole
        characters (byte_tokens.py). In sampling, the other prompts affect a prompt's text, because all prompts in a
        batch share one random generator.
        """
        settings = self.completed(settings)
        prefixes = [None] * len(prompts) if prefixes is None else prefixes
        distinct = {id(prefix): prefix for prefix in prefixes if prefix}
        for required in distinct.values():
            self.require(required)
        limit = getattr(self.model.config, "max_position_embeddings", None)
        encoded: list[_Prompt] = []
        for index, (text, prefix) in enumerate(zip(prompts, prefixes, strict=True)):
            ids, values = self.codec.encode(text), prefix.values if prefix else None
            opening = self.codec.opening if values is None else ()
            read = require_rows(self.codec, [*opening, *ids] or [self.begin], self.rows)
            prefix_positions = 0 if values is None or learned_positions(self.model.config) is None else len(values)
            max_new_tokens = settings.longest_continuation(len(read) + prefix_positions, limit)
            encoded.append(_Prompt(index, text, ids, read, values, max_new_tokens))
        # Prompts are grouped by their longest continuation, because a sequence that ends early takes up positions until
        # the last one ends. They are also grouped by length if a setting examines earlier tokens, because it would
        # examine the padding, too.
        looks_back = settings.repetition_penalty != 1 or settings.no_repeat_ngram_size != 0
        batches: dict[tuple[int, ...], list[_Prompt]] = {}
        for each in encoded:
            lengths = (len(each.ids), len(each.read)) if looks_back else ()
            batches.setdefault((each.max_new_tokens, *lengths), []).append(each)
        answers: list[list[Generated]] = [[] for _ in encoded]
        # Afterwards, the random generators continue from their earlier state
        gpus = [torch.cuda.current_device()] if self.device.type == "cuda" else []
        with torch.inference_mode(), quiet(), torch.random.fork_rng(gpus):
            torch.manual_seed(torch.seed() if settings.seed is None else settings.seed)
            for batch in batches.values():
                for each, answer in zip(batch, self._run(batch, settings), strict=True):
                    answers[each.index] = answer
        return answers

    def _run(self, prompts: list[_Prompt], settings: GenerateConfig) -> list[list[Generated]]:
        """Return the texts for one batch, which is padded on the left."""
        count, max_new_tokens = settings.num_return_sequences, prompts[0].max_new_tokens
        inputs, mask = left_padded([each.read for each in prompts], self.device, self.end)
        width = inputs.shape[1]
        outputs = self.model.generate(
            inputs,
            generation_config=self._arguments(settings, max_new_tokens),
            logits_processor=[WholeCharacters(self.characters, width + max_new_tokens)] if self.characters else [],
            **self._after_prefixes([each.prefix for each in prompts], mask, max(settings.beams, count)),
        )
        new = outputs[:, width:].unflatten(0, (-1, count)).tolist()
        pairs = zip(prompts, new, strict=True)
        return [decode(self.codec, each.text, each.ids, ids, *self.ends) for each, ids in pairs]

    def _after_prefixes(self, prefixes: list[Tensor | None], mask: Tensor, copies: int) -> dict[str, Any]:
        """Return the arguments of `generate` that place each sequence, of which it makes `copies`, after its prefix."""
        if all(prefix is None for prefix in prefixes):
            return {"attention_mask": mask}
        repeated = [prefix for prefix in prefixes for _ in range(copies)]
        cache, front = past(repeated, self.shape, self.model.dtype, self.device)
        front = front[::copies]
        return {
            "past_key_values": cache,
            "attention_mask": torch.cat([front, mask], 1),
            "position_ids": positions(front.sum(1), mask),
        }

    def _arguments(self, settings: GenerateConfig, max_new_tokens: int) -> GenerationConfig:
        """Return the settings as a GenerationConfig; `max_new_tokens` is that of the longest continuation."""
        names = ["num_return_sequences", "min_new_tokens", "repetition_penalty", "no_repeat_ngram_size"]
        of_strategy = {"sampling": ["top_k", "top_p", "temperature"], "beam": ["length_penalty", "early_stopping"]}
        names += of_strategy.get(str(settings.strategy), [])
        return GenerationConfig(
            do_sample=settings.strategy == "sampling",
            num_beams=settings.beams,
            max_new_tokens=max_new_tokens,
            eos_token_id=self.ends,
            pad_token_id=self.end,
            suppress_tokens=self.not_tokens or None,
            **{name: getattr(settings, name) for name in names},
        )

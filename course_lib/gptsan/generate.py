"""Text from a trained GPTSAN: the context goes on, behind a prefix that is seen in both directions, steered by the spout.

What differs from the original's run_generate.py:
- The past is kept (KV cache); the original computes its whole context again for each token.
- Texts are drawn independently, from the top_k likeliest tokens; the original restarts finished rows from the best live one.
  As there, the end of text is taken wherever it is likeliest.
- A sentence end in prompt or continuation is read as SEP, and a run of equal tokens as token and BAG: what training reads
  (layouts.py). `original_prompt` reads them as they are.
- No token overflows an expert: a text does not depend on those that are generated beside it.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import DynamicCache

from course_lib.checkpoints.model_folder import reading_weights
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.extra_stage import read_config
from course_lib.gptsan.generation_config import GenerateConfig, SpoutSettings
from course_lib.gptsan.layouts import Marks, decoder_part
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.prefix import prefix_types
from course_lib.gptsan.tokenizer import GPTSanTokenizer, load_tokenizer
from course_lib.progress import progress


@dataclass(frozen=True)
class Prompt:
    """What stands before the continuation: `read` by the model, its part behind SEG as the model would have `written` it."""

    read: list[int]
    written: list[int]
    num_input: int  # positions before SEG


class Generator:
    """A model with its tokenizer, on a device."""

    def __init__(self, model: GPTSanForCausalLM, tokenizer: GPTSanTokenizer) -> None:
        """Sets the model to evaluation, and the capacity of its experts to all tokens there are."""
        self.model, self.encoding, self.config = model.eval(), tokenizer.swe, model.config
        self.device = model.final_logits_bias.device
        self.marks = marks = Marks.of(self.encoding)
        self.config.eval_capacity_factor = self.config.num_experts
        self.config.expert_capacity = self.config.max_position_embeddings
        never = [marks.sot, marks.msk, marks.sep, marks.nottoken, marks.seg]  # none of them is ever written
        rows = torch.arange(self.config.vocab_size, device=self.device)
        self.never = torch.isin(rows, torch.tensor(never, device=self.device)) | (rows >= len(self.encoding))
        self.read_as = rows.clone()  # by token that was written
        self.read_as[list(marks.ends)] = marks.sep

    @classmethod
    def open(cls, folder: Path, device: str | None = None, dtype: torch.dtype | str = "auto") -> "Generator":
        """The model of a folder, as stored unless `dtype` says otherwise, on the GPU if there is one unless `device` does.

        Raises CourseError for a folder that holds no whole GPTSAN with its tokenizer.
        """
        shape = read_config(folder)
        tokenizer = load_tokenizer(folder)
        if len(tokenizer.swe) > shape.vocab_size:
            raise CourseError(
                f"{folder}: the tokenizer has {len(tokenizer.swe)} entries, the model {shape.vocab_size} rows: they do not belong together"
            )
        with reading_weights(folder):
            model, report = GPTSanForCausalLM.from_pretrained(
                folder,
                config=shape,
                dtype=dtype,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        if wrong := sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}):
            raise CourseError(
                f"{folder}: {len(wrong)} weights are missing or of another shape, the first is {wrong[0]}"
            )
        return cls(model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), tokenizer)

    def continue_text(self, context: str, settings: GenerateConfig | None = None, prefix: str = "") -> list[str]:
        """`num_generate` texts, each the context as given and how it goes on; the prefix is read before it.

        Raises UsageError if prompt and one token more do not fit the model's positions, and for a spout that the model does not have.
        """
        settings = settings or GenerateConfig()
        prompt = self.prompt(context, prefix, settings.original_prompt)
        rows = self.tokens(prompt, settings).tolist()
        before = len(self.encoding.decode(prompt.written))
        return [context + self.encoding.decode(prompt.written + self._text(row))[before:] for row in rows]

    def prompt(self, context: str, prefix: str = "", original: bool = False) -> Prompt:
        """SOT prefix SEG context, as ids."""
        encode = self.encoding.encode_text
        lines = [context] if original else context.splitlines(keepends=True)
        read: list[int] = []
        written: list[int] = []
        for line in lines:  # runs end with the line, as in training
            ids = encode(line, clean=not original)
            parts = (ids, ids) if original else decoder_part(ids, self.marks)
            read += parts[0]
            written += parts[1]
        before = [self.marks.sot, *encode(prefix)]
        return Prompt([*before, self.marks.seg, *read], written, len(before))

    @torch.inference_mode()
    def tokens(self, prompt: Prompt, settings: GenerateConfig) -> Tensor:
        """The continuations [num_generate, tokens]; what follows an end of text there means nothing."""
        rng = self.rng(settings)
        spout = self.spout(settings, settings.num_generate, rng)
        room = self._room(len(prompt.read) + (spout is not None))
        read_as = torch.arange(self.config.vocab_size, device=self.device) if settings.original_prompt else self.read_as
        cache, logits = self._begin(prompt, spout)
        if len(logits) < settings.num_generate:  # the prompt is the same for all: computed once
            cache.batch_repeat_interleave(settings.num_generate)
            logits = logits.expand(settings.num_generate, -1)
        rows: list[Tensor] = []
        ended = torch.zeros(settings.num_generate, dtype=torch.bool, device=self.device)
        length = min(settings.max_new_tokens, room)
        with progress(length, "token", "generating") as bar:
            while True:
                rows.append(self._choose(logits, settings, rng))
                bar.update()
                ended |= rows[-1] == self.marks.eot
                if len(rows) == length or ended.all():
                    return torch.stack(rows, 1)
                output = self.model(read_as[rows[-1]][:, None], past_key_values=cache, use_cache=True)
                logits = output.logits[:, -1]

    def rng(self, settings: SpoutSettings) -> torch.Generator:
        """Random numbers from the seed, or from anywhere."""
        rng = torch.Generator(self.device)
        if settings.seed is None:
            rng.seed()
        else:
            rng.manual_seed(settings.seed)
        return rng

    def spout(self, settings: SpoutSettings, texts: int, rng: torch.Generator) -> Tensor | None:
        """What feeds the spout: [texts, d_spout] if each text has its own, else [1, d_spout]. Raises UsageError for what the model has not."""
        width, wanted, label = self.config.d_spout, settings.spout, settings.label
        if wanted == "none":
            return None
        if not width:
            raise UsageError(f"spout: {wanted} is not allowed: this model has no spout (d_spout 0); allowed: none")
        if label is not None and label >= width:
            raise UsageError(f"spout: class {label} is not allowed: this model has classes 0 to {width - 1}")
        if wanted == "uniform":
            return torch.rand(texts, width, generator=rng, device=self.device)
        vector = torch.zeros(1, width, device=self.device)
        if label is not None:
            vector[0, label] = 1
        return vector

    def _begin(self, prompt: Prompt, spout: Tensor | None) -> tuple[DynamicCache, Tensor]:
        """The cache and the logits [N, V] behind the prompt; one row, or one for each spout vector."""
        texts = 1 if spout is None else len(spout)
        ids = torch.tensor([prompt.read], device=self.device).expand(texts, -1)
        types = prefix_types(torch.tensor([prompt.num_input], device=self.device), len(prompt.read), spout is not None)
        cache = DynamicCache(config=self.config)
        output = self.model(ids, token_type_ids=types, spout=spout, past_key_values=cache, logits_to_keep=1)
        return cache, output.logits[:, -1]

    def _room(self, slots: int) -> int:
        """Tokens of the longest continuation behind so many slots. Raises UsageError if there is none."""
        positions = self.config.max_position_embeddings
        if slots >= positions:
            raise UsageError(
                f"context: with its marks {slots} tokens, which is not allowed: the model has {positions} positions, one at least must be left"
            )
        return int(positions - slots)

    def _choose(self, logits: Tensor, settings: GenerateConfig, rng: torch.Generator) -> Tensor:
        """The next tokens [N] of logits [N, V]."""
        logits = logits.float().masked_fill(self.never, -torch.inf)
        best = logits.topk(min(settings.top_k or len(self.encoding), len(self.encoding)))
        first = best.indices[:, 0]
        if settings.greedy:
            return first
        place = torch.multinomial((best.values / settings.temperature).softmax(-1), 1, generator=rng)
        return torch.where(first == self.marks.eot, first, best.indices.gather(1, place)[:, 0])

    def _text(self, row: list[int]) -> list[int]:
        """The tokens before the end of text."""
        return row[: row.index(self.marks.eot)] if self.marks.eot in row else row

"""Text generation with a GPTSAN model: continues a context after a bidirectional prefix, steered by the spout.

`generate` in transformers samples from the whole vocabulary with torch's global random generator, so the same seed
would give different texts. Differences from run_generate.py in the original code (tanreinama/GPTSAN):

- A key/value cache stores the past tokens. The original code recomputes the whole context for each token.
- Texts are sampled independently from the top_k most probable tokens. The original code restarts finished texts from
  the best unfinished one. In both, the end of text is chosen whenever it is the most probable token.
- As in training (layouts.py), the model reads SEP (separator) in place of each sentence end in the context or the
  continuation. It reads a run of three or more equal tokens in the context as one such token followed by BAG (bag of
  tokens). With `original_prompt`, it reads both unchanged.
- Byte tokens always form whole characters (generation/byte_tokens.py). If a chosen token would break a character, it is
  chosen again among the allowed ones. This choice has its own random generator, so that the other texts do not change.
- Every expert has room for all tokens, so a text does not depend on the other texts in the batch.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import DynamicCache

from course_lib.checkpoints import compute, model_folder
from course_lib.errors import CourseError, UsageError
from course_lib.generation.byte_tokens import RECENT, ByteTokens
from course_lib.generation.character_mask import CharacterMask
from course_lib.generation.codec import before_end
from course_lib.gptsan.folder import read_config
from course_lib.gptsan.generation_config import GenerateConfig, SpoutSettings
from course_lib.gptsan.layouts import Marks, decoder_part
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.prefix import prefix_types
from course_lib.gptsan.swe import BYTES, SubwordEncoding
from course_lib.gptsan.tokenizer import GPTSanTokenizer, load_tokenizer
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress


@dataclass(frozen=True)
class Prompt:
    """A prompt as token ids.

    `read` is the entire model input. `written` is the context as the model would have generated it: its sentence ends
    are not replaced with SEP (separator).
    """

    read: list[int]
    written: list[int]
    num_input: int  # number of positions before SEG


class GPTSANGenerator:
    """Text generator that uses a model and its tokenizer on one device."""

    def __init__(self, model: GPTSanForCausalLM, tokenizer: GPTSanTokenizer) -> None:
        """Set the model to evaluation mode, and give each expert enough capacity for all tokens."""
        self.model, self.encoding, self.config = model.eval(), tokenizer.swe, model.config
        self.device = model.final_logits_bias.device
        self.marks = marks = Marks.of(self.encoding)
        self.config.eval_capacity_factor = self.config.num_experts
        self.config.expert_capacity = self.config.max_position_embeddings
        # Special tokens that are never generated.
        never = [marks.sot, marks.msk, marks.sep, marks.nottoken, marks.seg]
        rows = torch.arange(self.config.vocab_size, device=self.device)
        self.never = torch.isin(rows, torch.tensor(never, device=self.device)) | (rows >= len(self.encoding))
        # For each generated token: the token that the model reads instead.
        self.read_as = rows.clone()
        self.read_as[list(marks.ends)] = marks.sep
        self.characters = CharacterMask(byte_table(self.encoding, self.config.vocab_size), self.device)

    @classmethod
    def open(cls, folder: Path, device: str | None = None, dtype: torch.dtype | str = "auto") -> "GPTSANGenerator":
        """Load the model and the tokenizer from a folder, to the GPU if there is one and `device` is None."""
        shape = read_config(folder)
        tokenizer = load_tokenizer(folder)
        if len(tokenizer.swe) > shape.vocab_size:
            raise CourseError(
                tr(
                    "{folder}: the tokenizer has {swe} entries, but the model's vocab_size is {vocab_size}: they do "
                    "not belong together",
                    folder=folder,
                    swe=len(tokenizer.swe),
                    vocab_size=shape.vocab_size,
                )
            )
        model = model_folder.load_weights(GPTSanForCausalLM, folder, shape, dtype=dtype)
        return cls(model.to(device or compute.device()), tokenizer)

    def continue_text(self, context: str, settings: GenerateConfig | None = None, prefix: str = "") -> list[str]:
        """Generate `num_generate` texts, each consisting of the unchanged context and a continuation.

        The texts do not include the prefix, in which attention is bidirectional.
        """
        settings = settings or GenerateConfig()
        prompt = self.prompt(context, prefix, settings.original_prompt)
        rows = self.tokens(prompt, settings).tolist()
        before = len(self.encoding.decode(prompt.written))
        texts = [self.encoding.decode(prompt.written + before_end(row, self.marks.eot)) for row in rows]
        return [context + text[before:] for text in texts]

    def prompt(self, context: str, prefix: str = "", original: bool = False) -> Prompt:
        """Encode a prompt: SOT (start of text), prefix, SEG (segmenter), context.

        With `original`, the context is not cleaned, and its sentence ends and runs are read unchanged.
        """
        encode = self.encoding.encode_text
        lines = [context] if original else context.splitlines(keepends=True)
        read: list[int] = []
        written: list[int] = []
        # As in training, a run does not extend beyond its line.
        for line in lines:
            ids = encode(line, clean=not original)
            parts = (ids, ids) if original else decoder_part(ids, self.marks)
            read += parts[0]
            written += parts[1]
        before = [self.marks.sot, *encode(prefix)]
        return Prompt([*before, self.marks.seg, *read], written, len(before))

    @torch.inference_mode()
    def tokens(self, prompt: Prompt, settings: GenerateConfig) -> Tensor:
        """Generate continuations [num_generate, tokens].

        Callers must ignore the tokens after the first end of text in each sequence.
        """
        rng = self.rng(settings)
        again = torch.Generator(self.device).manual_seed(rng.initial_seed())
        spout = self.spout(settings, settings.num_generate, rng)
        room = self._room(len(prompt.read) + (spout is not None))
        read_as = torch.arange(self.config.vocab_size, device=self.device) if settings.original_prompt else self.read_as
        cache, logits = self._begin(prompt, spout)
        # Texts with the same spout vector share one pass over the prompt.
        if len(logits) < settings.num_generate:
            cache.batch_repeat_interleave(settings.num_generate)
            logits = logits.expand(settings.num_generate, -1)
        recent = torch.tensor([prompt.written[-RECENT:]], device=self.device, dtype=torch.long)
        recent = recent.expand(settings.num_generate, -1)
        rows: list[Tensor] = []
        ended = torch.zeros(settings.num_generate, dtype=torch.bool, device=self.device)
        length = min(settings.max_new_tokens, room)
        with progress(length, "token", "generating") as bar:
            while True:
                chosen, left = self._choose(logits, settings, rng), length - len(rows)
                wrong = self.characters.wrong(recent, left, chosen) & ~ended
                if wrong.any():
                    allowed = logits.masked_fill(self.characters.blocked(recent, left), -torch.inf)
                    chosen[wrong] = self._choose(allowed[wrong], settings, again)
                rows.append(chosen)
                recent = torch.cat([recent, chosen[:, None]], 1)[:, -RECENT:]
                bar.update()
                ended |= chosen == self.marks.eot
                if left == 1 or ended.all():
                    return torch.stack(rows, 1)
                output = self.model(read_as[chosen][:, None], past_key_values=cache, use_cache=True)
                logits = output.logits[:, -1]

    def rng(self, settings: SpoutSettings) -> torch.Generator:
        """Return a random generator with the seed from the settings, or with a random seed if none is set."""
        rng = torch.Generator(self.device)
        if settings.seed is None:
            rng.seed()
        else:
            rng.manual_seed(settings.seed)
        return rng

    def spout(self, settings: SpoutSettings, texts: int, rng: torch.Generator) -> Tensor | None:
        """Return the input to the spout: [texts, d_spout] for "uniform", None for "none", otherwise [1, d_spout]."""
        width, wanted, label = self.config.d_spout, settings.spout, settings.label
        if wanted == "none":
            return None
        if not width:
            raise UsageError(
                tr("spout: {wanted} is not allowed: this model has no spout (d_spout 0); allowed: none", wanted=wanted)
            )
        if label is not None and label >= width:
            raise UsageError(
                tr(
                    "spout: class {label} is not allowed: this model has classes 0 to {width}",
                    label=label,
                    width=width - 1,
                )
            )
        if wanted == "uniform":
            return torch.rand(texts, width, generator=rng, device=self.device)
        vector = torch.zeros(1, width, device=self.device)
        if label is not None:
            vector[0, label] = 1
        return vector

    def _begin(self, prompt: Prompt, spout: Tensor | None) -> tuple[DynamicCache, Tensor]:
        """Run the model on the prompt and return the key/value cache and the logits for the next token.

        The logits are [N, V], where N is the number of spout vectors, or 1 without a spout.
        """
        texts = 1 if spout is None else len(spout)
        ids = torch.tensor([prompt.read], device=self.device).expand(texts, -1)
        types = prefix_types(torch.tensor([prompt.num_input], device=self.device), len(prompt.read), spout is not None)
        cache = DynamicCache(config=self.config)
        output = self.model(ids, token_type_ids=types, spout=spout, past_key_values=cache, logits_to_keep=1)
        return cache, output.logits[:, -1]

    def _room(self, slots: int) -> int:
        """Return the maximum number of new tokens after a prompt of `slots` slots (tokens and spout)."""
        positions = self.config.max_position_embeddings
        if slots >= positions:
            raise UsageError(
                tr(
                    "context: {slots} tokens, including special tokens and spout, are not allowed: the model has "
                    "{positions} positions, and at least one must be left",
                    slots=slots,
                    positions=positions,
                )
            )
        return int(positions - slots)

    def _choose(self, logits: Tensor, settings: GenerateConfig, rng: torch.Generator) -> Tensor:
        """Choose the next tokens [N] from the logits [N, V]."""
        logits = logits.float().masked_fill(self.never, -torch.inf)
        best = logits.topk(min(settings.top_k or len(self.encoding), len(self.encoding)))
        first = best.indices[:, 0]
        if settings.greedy:
            return first
        drawn = torch.multinomial((best.values / settings.temperature).softmax(-1), 1, generator=rng)
        return torch.where(first == self.marks.eot, first, best.indices.gather(1, drawn)[:, 0])


def byte_table(encoding: SubwordEncoding, rows: int) -> ByteTokens:
    """Return the table of allowed tokens for a vocabulary; `rows` is the model's vocabulary size."""
    pieces: list[bytes | None] = [name.encode("utf8", "surrogatepass") for name in encoding.names]
    for value, token in enumerate(BYTES):
        pieces[encoding.ids[token]] = bytes([value])
    return ByteTokens(pieces + [None] * (rows - len(pieces)), repeat=encoding.bag)

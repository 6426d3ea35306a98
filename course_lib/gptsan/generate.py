"""Text generation with a GPTSAN model: continues a context after a bidirectional prefix, steered by the spout.

Differences from run_generate.py in the original code (tanreinama/GPTSAN):

- A key/value cache stores the past tokens. The original code recomputes the whole context for each token.
- Texts are sampled independently from the top_k most probable tokens. The original code restarts finished texts from
  the best unfinished one. In both, the end of text is chosen whenever it is the most probable token.
- The model reads the context as in training (layouts.py): SEP (separator) in place of each sentence end, and BAG (bag
  of tokens) in place of the rest of a run.
- Byte tokens always form whole characters (generation/byte_tokens.py).
- Every expert processes all tokens that choose it, so a text does not depend on the other texts in the batch.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from course_lib.checkpoints import compute, model_folder
from course_lib.documents import with_newlines
from course_lib.errors import CourseError, UsageError
from course_lib.generation.byte_tokens import RECENT, ByteTokens
from course_lib.generation.character_mask import CharacterMask
from course_lib.generation.codec import before_end
from course_lib.gptsan.config import GenerateConfig
from course_lib.gptsan.hf_config import read_config, require_fitting
from course_lib.gptsan.layouts import SpecialIds, inputs_and_targets
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.swe import BYTES, SubwordEncoding
from course_lib.gptsan.tokenizer import GPTSanTokenizer, load_tokenizer
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress


class Prompt(NamedTuple):
    """A prompt as token ids."""

    read: list[int]  # the entire model input
    written: list[int]  # the context as the model would have generated it, with its sentence ends
    num_input: int  # number of positions before SEG


class GPTSanGenerator:
    """Text generator that uses a model and its tokenizer on one device."""

    def __init__(self, model: GPTSanForCausalLM, tokenizer: GPTSanTokenizer) -> None:
        """Set the model to evaluation mode, and give each expert enough capacity for all tokens."""
        self.model, self.encoding, self.config = model.eval(), tokenizer.swe, model.config
        self.device = model.final_logits_bias.device
        self.special = special = SpecialIds.of(self.encoding)
        self.config.eval_capacity_factor = self.config.num_experts
        # Special tokens that are never generated.
        never = [special.sot, special.msk, special.sep, special.nottoken, special.seg]
        rows = torch.arange(self.config.vocab_size, device=self.device)
        self.never = torch.isin(rows, torch.tensor(never, device=self.device)) | (rows >= len(self.encoding))
        # For each generated token: the token that the model reads instead.
        self.read_as = rows.clone()
        self.read_as[list(special.ends)] = special.sep
        self.characters = CharacterMask(byte_table(self.encoding, self.config.vocab_size), self.device)

    @classmethod
    def open(cls, folder: Path, device: str | None = None, dtype: torch.dtype | str = "auto") -> "GPTSanGenerator":
        """Load the model and the tokenizer from a folder, to the GPU if there is one and `device` is None."""
        config, tokenizer = read_config(folder), load_tokenizer(folder)
        if len(tokenizer.swe) > config.vocab_size:
            raise CourseError(
                tr(
                    "{folder}: the tokenizer has {swe} entries, but the model's vocab_size is {vocab_size}: they do "
                    "not belong together",
                    folder=folder,
                    swe=len(tokenizer.swe),
                    vocab_size=config.vocab_size,
                )
            )
        require_fitting(folder, config)
        model = model_folder.load_weights(GPTSanForCausalLM, folder, config, dtype=dtype)
        return cls(model.to(device or compute.device()), tokenizer)

    def continue_text(self, context: str, settings: GenerateConfig | None = None, prefix: str = "") -> list[str]:
        """Generate `num_generate` texts: the unchanged context and a continuation, without the bidirectional prefix."""
        prompt = self.prompt(context, prefix)
        rows = self.tokens(prompt, settings or GenerateConfig()).tolist()
        before = len(self.encoding.decode(prompt.written))
        texts = [self.encoding.decode(prompt.written + before_end(row, self.special.eot)) for row in rows]
        return [context + text[before:] for text in texts]

    def prompt(self, context: str, prefix: str = "") -> Prompt:
        """Encode a prompt: SOT (start of text), prefix, SEG (segmenter), context."""
        read, written = (
            [self.special.sot, *self.encoding.encode_text(with_newlines(prefix)), self.special.seg],
            list[int](),
        )
        num_input = len(read) - 1
        # As in training, a run does not extend beyond its line.
        for line in with_newlines(context).splitlines(keepends=True):
            inputs, targets = inputs_and_targets(self.encoding.encode_text(line, clean=True), self.special)
            read, written = read + inputs, written + targets
        return Prompt(read, written, num_input)

    @torch.inference_mode()
    def tokens(self, prompt: Prompt, settings: GenerateConfig) -> Tensor:
        """Generate continuations [num_generate, tokens]; tokens after the first end of text have no meaning."""
        number, rng = settings.num_generate, torch.Generator(self.device)
        rng.manual_seed(rng.seed() if settings.seed is None else settings.seed)
        spout = self.spout(settings.spout, number, rng)
        # Slots of the prompt: tokens and spout.
        slots, positions = len(prompt.read) + (spout is not None), int(self.config.max_position_embeddings)
        if slots >= positions:
            raise UsageError(
                tr(
                    "context: {slots} tokens, including special tokens and spout, are not allowed: the model has "
                    "{positions} positions, and at least one must be left",
                    slots=slots,
                    positions=positions,
                )
            )
        cache = DynamicCache(config=self.config)
        # Texts with the same spout vector share one pass over the prompt.
        ids = torch.tensor([prompt.read], device=self.device).expand(1 if spout is None else len(spout), -1)
        types = token_types(torch.tensor([prompt.num_input], device=self.device), ids.shape[1], spout is not None)
        output = self.model(ids, token_type_ids=types, spout=spout, past_key_values=cache, logits_to_keep=1)
        logits = output.logits[:, -1]
        if len(logits) < number:
            cache.batch_repeat_interleave(number)
            logits = logits.expand(number, -1)
        recent = torch.tensor([prompt.written[-RECENT:]], device=self.device, dtype=torch.long).expand(number, -1)
        rows: list[Tensor] = []
        ended = torch.zeros(number, dtype=torch.bool, device=self.device)
        length = min(settings.max_new_tokens, positions - slots)
        with progress(length, "token", "generating") as bar:
            while True:
                left = length - len(rows)
                blocked = self.never | self.characters.blocked(recent, left)
                chosen = self._choose(logits.float().masked_fill(blocked, -torch.inf), settings, rng)
                rows.append(chosen)
                recent = torch.cat([recent, chosen[:, None]], 1)[:, -RECENT:]
                bar.update()
                ended |= chosen == self.special.eot
                if left == 1 or ended.all():
                    return torch.stack(rows, 1)
                output = self.model(self.read_as[chosen][:, None], past_key_values=cache, use_cache=True)
                logits = output.logits[:, -1]

    def spout(self, wanted: int | str, texts: int, rng: torch.Generator) -> Tensor | None:
        """Return the input to the spout: [texts, d_spout] for "uniform", None for "none", otherwise [1, d_spout]."""
        width = self.config.d_spout
        if wanted == "none":
            return None
        if not width:
            raise UsageError(
                tr("spout: {wanted} is not allowed: this model has no spout (d_spout 0); allowed: none", wanted=wanted)
            )
        if wanted == "uniform":
            return torch.rand(texts, width, generator=rng, device=self.device)
        if wanted == "zeros":
            return torch.zeros(1, width, device=self.device)
        if int(wanted) >= width:
            raise UsageError(
                tr(
                    "spout: class {label} is not allowed: this model has classes 0 to {width}",
                    label=wanted,
                    width=width - 1,
                )
            )
        return torch.eye(width, device=self.device)[None, int(wanted)]

    def _choose(self, logits: Tensor, settings: GenerateConfig, rng: torch.Generator) -> Tensor:
        """Choose the next tokens [N] from the logits [N, V]."""
        best = logits.topk(min(settings.top_k or len(self.encoding), len(self.encoding)))
        first = best.indices[:, 0]
        if settings.greedy:
            return first
        drawn = torch.multinomial((best.values / settings.temperature).softmax(-1), 1, generator=rng)
        return torch.where(first == self.special.eot, first, best.indices.gather(1, drawn)[:, 0])


def token_types(num_input: Tensor, length: int, spout: bool) -> Tensor:
    """Return the token types [B, length] for the model: 1 in the prefix, 0 after it.

    `num_input` [B] counts the positions before SEG, the token that ends the prefix. As in the original code, it is in
    key/value slots, and the spout is the first slot. With a spout, the prefix is one token shorter: SOT a b SEG c has
    the types 1 1 1 0 0, with a spout 1 1 0 0 0. The tokenizer, which knows of no spout, gives the first.
    """
    positions = torch.arange(length, device=num_input.device)
    return (positions < num_input[:, None] - int(spout)).long()


def byte_table(encoding: SubwordEncoding, rows: int) -> ByteTokens:
    """Return the table of allowed tokens for a vocabulary; `rows` is the model's vocabulary size."""
    pieces: list[bytes | None] = [name.encode("utf8", "surrogatepass") for name in encoding.names]
    for value, token in enumerate(BYTES):
        pieces[encoding.ids[token]] = bytes([value])
    return ByteTokens(pieces + [None] * (rows - len(pieces)), repeat=encoding.bag)

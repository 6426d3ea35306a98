"""The engine: from rows to texts, with the same tokens as FasterTransformer. It uses neither files nor Triton.

In static batching, a batch starts together and lasts until its longest text is finished, so short texts leave slots
empty that waiting texts could use. In continuous batching, texts join and leave between two tokens: each step generates
one token for every running text; then finished texts leave, and waiting ones take their slots. Introduced by Orca (Yu
et al. 2022, https://www.usenix.org/conference/osdi22/presentation/yu), and used by vLLM and TensorRT-LLM.

A batch can mix texts with different lengths, tasks and sampling settings; the others do not change a text. Unlike the
course's other generators, the engine does not keep the bytes of a character together.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from course_lib.generation.prefix_cache import Shape, left_padded, past, positions
from course_lib.serving.request import Answer, RequestRow, Word, require_valid
from course_lib.serving.text_stream import NewToken, TextStream

MAX_TEXTS = 64  # maximum number of texts in one forward pass
COLUMNS = 64  # the key/value cache grows by at least this many columns [tokens]


class Engine:
    """The model and the prefixes of an exported folder, ready to generate."""

    def __init__(self, model: Any, prefixes: Sequence[Tensor | None], start_id: int, end_id: int) -> None:
        """Create an engine for a transformers GPT-2 or GPT-NeoX, and the prefixes of its tasks [P, width]."""
        self.model = model
        self.prefixes = list(prefixes)
        self.start_id, self.end_id = start_id, end_id
        self.vocabulary: int = self.model.config.vocab_size
        # The maximum length, including the prefix [tokens]
        self.positions: int = self.model.config.max_position_embeddings

    @classmethod
    def of(cls, loaded: Any) -> "Engine":
        """Return an engine for the result of reader.load."""
        return cls(loaded.model, loaded.prefixes, loaded.config.start_id, loaded.config.end_id)

    def run(
        self, rows: Sequence[RequestRow], log_probs: bool = False, streams: Sequence[TextStream] = ()
    ) -> list[Answer]:
        """Return the answers to `rows`, in their order, with the log probability of each new token if asked for.

        `streams`, one for each row or none at all, are given each token as it is drawn.
        """
        for row in rows:
            self.check(row)
        generations = self.generations(rows, log_probs, streams)
        # The longest texts begin first, so that none of them runs alone in the end
        waiting = sorted(generations, key=lambda one: (-one.left, -len(one.prompt)))
        batch = TextBatch(self.model)
        while waiting or batch.running:
            joining, waiting = waiting[: batch.free], waiting[batch.free :]
            batch.join(joining)
            if batch.running:
                batch.step()
        return [generation.answer() for generation in generations]

    def check(self, row: RequestRow) -> None:
        """Raise UsageError if the model cannot continue the text of a row; the message names the request tensor."""
        prefix_lengths = [0 if prefix is None else len(prefix) for prefix in self.prefixes]
        require_valid(row, self.vocabulary, self.positions, self.start_id, prefix_lengths)

    def generation(self, row: RequestRow, log_probs: bool = False, stream: TextStream | None = None) -> "Generation":
        """Return the text of a valid row, ready to join a batch."""
        start = self.start_id if row.start_id is None else row.start_id
        end = self.end_id if row.end_id is None else row.end_id
        prefix = None if row.task is None else self.prefixes[row.task]
        return Generation(row, end, row.ids or (start,), prefix, log_probs, stream)

    def generations(
        self, rows: Sequence[RequestRow], log_probs: bool = False, streams: Sequence[TextStream] = ()
    ) -> "list[Generation]":
        """Return the texts of several rows; `streams` as in `run`."""
        each: Sequence[TextStream | None] = streams or [None] * len(rows)
        return [self.generation(row, log_probs, stream) for row, stream in zip(rows, each, strict=True)]


class Generation:
    """A text that is being generated, or waits for it, with its tokens so far."""

    def __init__(
        self,
        row: RequestRow,
        end: int,
        prompt: tuple[int, ...] = (),
        prefix: Tensor | None = None,
        wants_log_probs: bool = False,
        stream: TextStream | None = None,
    ) -> None:
        """Begin a text.

        Args:
            row: the row of the request that asks for it.
            end: the token that ends it.
            prompt: what the model reads first: the row's input, or the start token.
            prefix: the values of its task's prefix [P, width], or None.
            wants_log_probs: whether the answer needs log probabilities.
            stream: what is given each token as it is drawn, and may end the text.
        """
        self.row, self.end, self.prompt, self.prefix = row, end, prompt, prefix
        self.wants_log_probs, self.stream = wants_log_probs, stream
        if stream:
            stream.restart()
        self.ids = list(row.ids)
        self.log_probs: list[float] = []
        self.left = row.output_length  # tokens still allowed
        self.finished = False
        # A random generator for each text, so that the text does not depend on the others in the batch
        self.rng = random.Random(row.seed)
        self.top_p = row.top_p or 1.0

    def add(self, token: int, log_prob: float | None = None, new: NewToken | None = None) -> None:
        """Append a token, unless the text has ended; its stream gets `new`, or the token alone."""
        if self.finished:
            return
        self.ids.append(token)
        if log_prob is not None:
            self.log_probs.append(log_prob)
        self.left -= 1
        self.finished = token == self.end or not self.left or any(self.ends_in(word) for word in self.row.stop_words)
        if self.stream:
            self.finished = self.stream.add(new or NewToken(token), self.finished)
        if self.row.top_k == 0:
            reset = token == self.row.top_p_reset_id
            self.top_p = self.row.top_p if reset else max(self.top_p * self.row.top_p_decay, self.row.top_p_min)

    def ends_in(self, word: Word) -> bool:
        """Return whether the text (input and new tokens) ends with the tokens of `word`."""
        return not word or tuple(self.ids[-len(word) :]) == word

    def answer(self) -> Answer:
        """Return the text in its current state."""
        return Answer(self.ids, self.log_probs)


class TextBatch:
    """The texts that are being generated together."""

    def __init__(self, model: Any) -> None:
        """Create an empty batch for a transformers GPT-2 or GPT-NeoX model."""
        self.running: list[Generation] = []
        self.slots = Slots(model)

    @property
    def free(self) -> int:
        """How many further texts can join."""
        return MAX_TEXTS - len(self.running)

    @torch.inference_mode()
    def join(self, texts: Sequence[Generation]) -> list[Generation]:
        """Read the prompts of these texts, choose their first tokens, and return the texts that are finished by it."""
        if not texts:
            return []
        logits = self.slots.prefill([text.prompt for text in texts], [text.prefix for text in texts])
        _choose(logits, texts)
        self.running += texts
        return self.leave({text for text in texts if text.finished})

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Choose the next token of every running text, and return the texts that are finished by it."""
        logits = self.slots.step([text.ids[-1] for text in self.running])
        _choose(logits, self.running)
        return self.leave({text for text in self.running if text.finished})

    @torch.inference_mode()
    def leave(self, gone: set[Generation]) -> list[Generation]:
        """Remove texts, finished or not, and arrange the cache's rows for those that stay."""
        # For each text that stays: its row in the cache now
        rows = list(range(len(self.running)))
        for index in reversed(range(len(self.running))):
            if self.running[index] in gone:
                # The last text takes the free row, so that few rows of the cache are copied
                last, row = self.running.pop(), rows.pop()
                if index < len(self.running):
                    self.running[index], rows[index] = last, row
        self.slots.select(rows)
        return list(gone)


# The choice of the next token


def adjust(logits: Tensor, texts: Sequence[Generation]) -> Tensor:
    """Return fp32 logits [N, V] after applying each text's bad words, repetition penalty and temperature."""
    scores = logits.float()
    for scored, text in zip(scores, texts, strict=True):
        for word in text.row.bad_words:
            # Every text ends with the empty beginning of a word of one token.
            if text.ends_in(word[:-1]):
                scored[word[-1]] = -torch.inf
        if text.row.repetition_penalty != 1:
            known = torch.tensor(sorted(set(text.ids)), device=scored.device)
            seen_logits, penalty = scored[known], text.row.repetition_penalty
            scored[known] = torch.where(seen_logits < 0, seen_logits * penalty, seen_logits / penalty)
    if any(text.row.temperature != 1 for text in texts):
        scores /= scores.new_tensor([text.row.temperature for text in texts])[:, None]
    return scores


def draw(scores: Tensor, texts: Sequence[Generation]) -> Tensor:
    """Return the next token id of each text, given its scores [N, V].

    It is the most likely one, or it is sampled as in FasterTransformer: the first of the top_k tokens, sorted by
    probability, whose cumulative probability reaches a random number from [0, top_p).
    """
    chosen = scores.argmax(-1)
    sampled = [index for index, text in enumerate(texts) if not text.row.greedy]
    if not sampled:
        return chosen
    scores, texts = scores[sampled], [texts[index] for index in sampled]
    width = scores.shape[1]
    top_k = [min(text.row.top_k or width, width) for text in texts]
    best = scores.topk(max(top_k))
    last = torch.tensor(top_k, device=scores.device)[:, None] - 1
    outside = torch.arange(max(top_k), device=scores.device) > last
    mass = best.values.masked_fill(outside, -torch.inf).softmax(-1).cumsum(-1)
    aim = scores.new_tensor([text.rng.random() * text.top_p for text in texts])[:, None]
    index = (mass < aim).sum(-1, keepdim=True).minimum(last)
    chosen[sampled] = best.indices.gather(-1, index)[:, 0]
    return chosen


def _choose(logits: Tensor, texts: Sequence[Generation]) -> None:
    """Append its next token to each of the N texts, given its logits [N, V].

    The log probability in an answer is that of the adjusted logits, as in FasterTransformer; a stream is told those of
    the model.
    """
    of_model = None
    if any(text.stream and text.stream.wanted is not None for text in texts):
        # Before `adjust`, which changes fp32 logits in place
        of_model = logits.float().log_softmax(-1)
    scores = adjust(logits, texts)
    tokens = draw(scores, texts)
    log_probs: list[float | None] = [None] * len(texts)
    if any(text.wants_log_probs for text in texts):
        log_probs = scores.log_softmax(-1).gather(-1, tokens[:, None])[:, 0].tolist()
    for index, (text, token) in enumerate(zip(texts, tokens.tolist(), strict=True)):
        new = None
        if of_model is not None and text.stream and text.stream.wanted is not None:
            best = of_model[index].topk(text.stream.wanted)
            likeliest = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
            new = NewToken(token, float(of_model[index, token]), likeliest)
        text.add(token, log_probs[index], new)


# The key/value cache


class Slots:
    """The key/value cache of the running texts, which differ in length, and the forward passes that read and extend it.

    Text i has row i of the cache, from column 0 on: its prefix, its prompt, and its new tokens. Its next token is
    written at column lengths[i], and has position id lengths[i]. So a text can join or leave without moving the others.

    Memory: layers · 2 · hidden size numbers per row and column. Both dimensions grow when needed, by doubling the rows
    and by a quarter of the columns; the memory is freed when the last text leaves.
    """

    def __init__(self, model: Any) -> None:
        """Create an empty cache for a transformers GPT-2 or GPT-NeoX model."""
        self.model = model
        self.shape = Shape.of(model.config)
        self.lengths: list[int] = []
        self.store: Tensor = self._empty(0, 0)

    def prefill(self, prompts: Sequence[Sequence[int]], prefixes: Sequence[Tensor | None]) -> Tensor:
        """Add a row per text, with its prefix [P, width] or None, and return the logits [N, V] after its prompt."""
        device = self.model.device
        cache, front = past(prefixes, self.shape, self.model.dtype, device)
        ids, text = left_padded(prompts, device)
        # Columns of this pass: prefixes, then prompts, both padded on the left
        mask = torch.cat([front, text], 1)
        logits: Tensor = self.model(
            ids,
            attention_mask=None if mask.all() else mask,
            position_ids=positions(front.sum(-1), text),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        self._add(cache, mask.bool())
        return logits[:, -1]

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Append a token to each text, and return the logits [N, V] after it."""
        device, width = self.model.device, max(self.lengths) + 1
        self._reserve(len(self.lengths), width)
        ends = torch.tensor(self.lengths, device=device)
        cache = DynamicCache()
        cache.layers = [_Layer(keys, values, ends, width) for keys, values in self.store]
        even = min(self.lengths) == width - 1
        logits: Tensor = self.model(
            torch.tensor(tokens, device=device)[:, None],
            attention_mask=None if even else (torch.arange(width, device=device) <= ends[:, None]).long(),
            position_ids=ends[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        self.lengths = [length + 1 for length in self.lengths]
        return logits[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order; an index may repeat. Only rows that change their index are copied."""
        moved = [index for index, row in enumerate(rows) if row != index]
        self._reserve(len(rows), 0)
        if moved:
            width, sources = max(self.lengths), [rows[index] for index in moved]
            self.store[:, :, moved, :, :width] = self.store[:, :, sources, :, :width]
        self.lengths = [self.lengths[row] for row in rows]
        if not rows:
            self.store = self._empty(0, 0)

    def _add(self, cache: DynamicCache, used: Tensor) -> None:
        """Copy the used columns of a prefill's cache [layers][N, heads, columns, head size] into new rows."""
        first, lengths = len(self.lengths), used.sum(1).tolist()
        self._reserve(first + len(lengths), max(lengths))
        for stored, layer in zip(self.store, cache.layers, strict=True):
            for index, length in enumerate(lengths):
                stored[0, first + index, :, :length] = layer.keys[index][:, used[index]]
                stored[1, first + index, :, :length] = layer.values[index][:, used[index]]
        self.lengths += lengths

    def _reserve(self, rows: int, columns: int) -> None:
        """Make the cache large enough for this many rows and columns, with the same content."""
        now_rows, now_columns = self.store.shape[2], self.store.shape[4]
        if rows <= now_rows and columns <= now_columns:
            return
        larger_rows = now_rows if rows <= now_rows else max(rows, 2 * now_rows)
        if columns > now_columns:
            columns = max(columns + COLUMNS, now_columns * 5 // 4)
        larger = self._empty(larger_rows, max(columns, now_columns))
        larger[:, :, :now_rows, :, :now_columns] = self.store
        self.store = larger

    def _empty(self, rows: int, columns: int) -> Tensor:
        """Return [layers, keys/values, rows, heads, columns, head size]. Zeros: a masked NaN would spread."""
        size = (self.shape.layers, 2, rows, self.shape.heads, columns, self.shape.head_size)
        return torch.zeros(size, dtype=self.model.dtype, device=self.model.device)


class _Layer(DynamicLayer):  # type: ignore[misc]
    """One layer of the cache during a step, as transformers wants it."""

    def __init__(self, keys: Tensor, values: Tensor, ends: Tensor, width: int) -> None:
        """Keep keys and values [rows, heads, columns, head size]; new tokens go to columns `ends`, of `width`."""
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values, self.ends, self.width = keys, values, ends, width

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new keys and values [N, heads, 1, head size] in place, and return all of them."""
        count = len(self.ends)
        rows = torch.arange(count, device=self.ends.device)
        self.keys[rows, :, self.ends] = key_states[:, :, 0]
        self.values[rows, :, self.ends] = value_states[:, :, 0]
        return self.keys[:count, :, : self.width], self.values[:count, :, : self.width]

    def get_seq_length(self) -> int:
        """Return the number of columns before the new token of the longest text."""
        return self.width - 1

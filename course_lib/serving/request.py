"""A request: its tensors, the text and the settings of each of its rows, what is allowed in them, and its response.

The tensors are those of the GPT-NeoX model of NVIDIA's fastertransformer_backend, so its clients work unchanged. A
request has one or several rows. Each asks for one text and is a `RequestRow`, with the same semantics and defaults as
FasterTransformer. There are four differences:

- No beam search: `beam_width` is always 1. `course generate` has it.
- An out-of-range value is an error; FasterTransformer clips it and prints a warning on the server's console.
- `sequence_length` counts only the row's own tokens; FasterTransformer also counts the padding of shorter inputs.
- `output_log_probs` refer to the whole vocabulary, so they add up to `cum_log_probs`. In FasterTransformer, they refer
  to probabilities among the top_k tokens, and so are always 0 for greedy decoding.

The client needs this module, too, and no torch: only a server reads tensors and makes those of a response.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import UsageError
from course_lib.generation.config import LEAST, MOST
from course_lib.language.words import tr, tr_noop

if TYPE_CHECKING:
    from torch import Tensor

MODEL = "fastertransformer"  # the model's name in requests
Word = tuple[int, ...]  # token ids of a bad word or stop word

# The tensors


@dataclass(frozen=True)
class TritonTensor:
    """A request or response tensor as declared in config.pbtxt; `dims` excludes the batch dimension."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool = False
    field: str | None = None  # of RequestRow, and of AskConfig if `course ask` sets it

    @property
    def scalar(self) -> bool:
        """Whether each row has one value; clients send [B, 1] and the backend receives [B]."""
        return self.dims == (1,)


# NVIDIA's GPT model has further tensors (context embeddings, prompts in the request), which are optional.
INPUTS = (
    TritonTensor("input_ids", "UINT32", (-1,)),
    TritonTensor("start_id", "UINT32", (1,), True, "start_id"),
    TritonTensor("end_id", "UINT32", (1,), True, "end_id"),
    TritonTensor("input_lengths", "UINT32", (1,)),
    TritonTensor("request_output_len", "UINT32", (-1,)),
    TritonTensor("runtime_top_k", "UINT32", (1,), True, "top_k"),
    TritonTensor("runtime_top_p", "FP32", (1,), True, "top_p"),
    TritonTensor("beam_search_diversity_rate", "FP32", (1,), True),
    TritonTensor("temperature", "FP32", (1,), True, "temperature"),
    TritonTensor("len_penalty", "FP32", (1,), True),
    TritonTensor("repetition_penalty", "FP32", (1,), True, "repetition_penalty"),
    TritonTensor("random_seed", "UINT64", (1,), True, "seed"),
    TritonTensor("is_return_log_probs", "BOOL", (1,), True),
    TritonTensor("beam_width", "UINT32", (1,), True, "beam_width"),
    TritonTensor("bad_words_list", "INT32", (2, -1), True),
    TritonTensor("stop_words_list", "INT32", (2, -1), True),
    TritonTensor("prompt_learning_task_name_ids", "UINT32", (1,), True, "task"),
    TritonTensor("top_p_decay", "FP32", (1,), True, "top_p_decay"),
    TritonTensor("top_p_min", "FP32", (1,), True, "top_p_min"),
    TritonTensor("top_p_reset_ids", "UINT32", (1,), True, "top_p_reset_id"),
)
OUTPUTS = (
    TritonTensor("output_ids", "UINT32", (-1, -1)),
    TritonTensor("sequence_length", "UINT32", (-1,)),
    TritonTensor("cum_log_probs", "FP32", (-1,)),
    TritonTensor("output_log_probs", "FP32", (-1, -1)),
)
DTYPES = {"UINT32": np.uint32, "UINT64": np.uint64, "INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}
# Request tensors with one value per row, and their fields in RequestRow
FIELDS = {tensor.name: tensor.field for tensor in INPUTS if tensor.field}
WORD_LISTS = ("bad_words_list", "stop_words_list")

# A row of a request, and what is allowed in it


@dataclass(frozen=True)
class RequestRow:
    """A row of a request: one text to continue, with its settings."""

    ids: tuple[int, ...]  # the input; empty: start with start_id, which is not part of the response
    output_length: int  # maximum number of new tokens
    task: int | None = None  # index of the prefix; None: no prefix
    top_k: int = 0  # sample from this many most likely tokens; 0: all; 1, or 0 with top_p 0: greedy decoding
    top_p: float = 0.0  # sample from the most likely of these, up to this share of their probability; 0: from all
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    beam_width: int = 1
    bad_words: tuple[Word, ...] = ()
    stop_words: tuple[Word, ...] = ()
    start_id: int | None = None  # None: the folder's start_id
    end_id: int | None = None  # None: the folder's end_id
    top_p_decay: float = 1.0  # with top_k 0: factor on top_p after each token (arXiv:2206.04624)
    top_p_min: float = 1e-6  # lower limit of the decayed top_p
    top_p_reset_id: int | None = None  # token after which top_p returns to its first value

    @property
    def greedy(self) -> bool:
        """Whether each token is the most likely one, without sampling."""
        return self.top_k == 1 or (self.top_k == 0 and self.top_p == 0)


@dataclass(frozen=True)
class Answer:
    """The text for one row: the input and the new tokens, including the end token if the text ended with it."""

    ids: list[int]
    log_probs: list[float] = field(default_factory=list)  # for each new token; empty unless requested


def require_valid(
    row: RequestRow, vocabulary: int, positions: int, start_id: int, prefix_lengths: Sequence[int]
) -> None:
    """Raise UsageError, which names the request tensor, if a model cannot continue the text of a row.

    Args:
        row: the row of the request.
        vocabulary: the model's vocabulary size.
        positions: its maximum length, including the prefix [tokens].
        start_id: the token that it reads where the input is empty and the row has no start_id.
        prefix_lengths: the length of each task's prefix [tokens]; 0 for a task without a prefix.
    """
    if row.task is not None and not 0 <= row.task < len(prefix_lengths):
        there = tr("allowed: 0 to {last}", last=len(prefix_lengths) - 1)
        allowed = there if prefix_lengths else tr("the model has no tasks")
        raise _refused("prompt_learning_task_name_ids", row.task, allowed)
    prefix = 0 if row.task is None else prefix_lengths[row.task]
    if prefix and not row.ids:
        raise _refused("input_lengths", 0, tr("a task needs an input of at least one token"))
    if row.output_length < 1:
        raise _refused("request_output_len", row.output_length, tr("allowed: 1 or more"))
    # An empty input is one token: the start token
    ids = row.ids or (start_id if row.start_id is None else row.start_id,)
    if prefix + len(ids) + row.output_length > positions:
        needed = tr(
            "{ids} with {new} new tokens after a prefix of {front}", ids=len(ids), new=row.output_length, front=prefix
        )
        raise _refused("input_lengths", needed, tr("the model has {positions} positions", positions=positions))
    tokens = {
        "input_ids" if row.ids else "start_id": [ids],
        "bad_words_list": row.bad_words,
        "stop_words_list": row.stop_words,
    }
    for name, words in tokens.items():
        for token in (token for word in words for token in word):
            if not 0 <= token < vocabulary:
                raise _refused(name, token, tr("allowed: 0 to {last}", last=vocabulary - 1))
    factors = f"{LEAST:g}–{MOST:g}"
    for name, value, good, allowed in (
        ("runtime_top_p", row.top_p, 0 <= row.top_p <= 1, "0–1"),
        ("temperature", row.temperature, LEAST <= row.temperature <= MOST, factors),
        ("repetition_penalty", row.repetition_penalty, LEAST <= row.repetition_penalty <= MOST, factors),
        ("top_p_decay", row.top_p_decay, 0 < row.top_p_decay <= 1, "> 0, ≤ 1"),
        ("top_p_min", row.top_p_min, 0 < row.top_p_min <= 1, "> 0, ≤ 1"),
        ("beam_width", row.beam_width, row.beam_width == 1, "1"),
    ):
        if not good:
            raise _refused(name, value, tr("allowed: {allowed}", allowed=allowed))


def _refused(name: str, value: object, allowed: str) -> UsageError:
    return UsageError(tr("{name}: {value} is not allowed; {allowed}", name=name, value=value, allowed=allowed))


# From tensors to rows, and from answers to tensors


def rows_of(tensors: Mapping[str, "Tensor"]) -> list[RequestRow]:
    """Return the rows of a request, given its tensors by name; optional ones may be missing.

    Raises UsageError if the tensors do not fit each other.
    """
    ids: list[list[int]] = tensors["input_ids"].tolist()
    others = {name: tensor for name, tensor in tensors.items() if name not in ("input_ids", *WORD_LISTS)}
    numbers = {name: _numbers(name, tensor) for name, tensor in others.items()}
    words = {name: _words(name, tensors[name]) for name in WORD_LISTS if name in tensors}
    _require_lengths(ids, numbers["input_lengths"])
    rows = []
    for index, padded in enumerate(ids):
        settings: dict[str, Any] = {FIELDS[name]: values[index] for name, values in numbers.items() if name in FIELDS}
        if "bad_words_list" in words:
            settings["bad_words"] = words["bad_words_list"][index]
        if "stop_words_list" in words:
            settings["stop_words"] = words["stop_words_list"][index]
        row_ids = tuple(padded[: numbers["input_lengths"][index]])
        rows.append(RequestRow(row_ids, numbers["request_output_len"][index], **settings))
    return rows


def _require_lengths(ids: list[list[int]], lengths: list[int]) -> None:
    """Raise UsageError if the lengths do not fit the ids: the longest row fills the tensor, the others are padded.

    One column may be padding: it stands for no input, which a tensor cannot hold.
    """
    width, longest = len(ids[0]), max(lengths)
    is_no_input = longest == 0 and width == 1
    if longest != width and not is_no_input:
        raise UsageError(
            tr(
                "input_lengths: {longest} is not allowed; the longest row of input_ids has {width} ids",
                longest=longest, width=width,
            )
        )  # fmt: skip


def _numbers(name: str, tensor: "Tensor") -> list[Any]:
    """Return one number for each row from a tensor [B] or [B, 1]."""
    if tensor.numel() != len(tensor):
        raise UsageError(f"{name}: shape {list(tensor.shape)} is not allowed; allowed: one number for each row")
    return list(tensor.flatten().tolist())


def word_list(lists: Sequence[Sequence[Word]]) -> NDArray[np.int32]:
    """Return the rows' words as a tensor [B, 2, n]: all words' token ids, and each word's end, padded with -1."""
    flat = [[token for word in words for token in word] for words in lists]
    table = np.zeros((len(lists), 2, max(1, *map(len, flat))), np.int32)
    table[:, 1] = -1
    for index, (ids, words) in enumerate(zip(flat, lists, strict=True)):
        table[index, 0, : len(ids)] = ids
        table[index, 1, : len(words)] = np.cumsum([len(word) for word in words])
    return table


def _words(name: str, tensor: "Tensor") -> list[tuple[Word, ...]]:
    """Return the words of each row from a tensor [B, 2, n]. This is the inverse of word_list."""
    words = []
    for ids, ends in tensor.tolist():
        ends = [end for end in ends if end >= 0]
        starts = [0, *ends][: len(ends)]
        if any(not start < end <= len(ids) for start, end in zip(starts, ends, strict=True)):
            raise UsageError(f"{name}: ends {ends} are not allowed; allowed: increasing numbers from 1 to {len(ids)}")
        words.append(tuple(tuple(ids[start:end]) for start, end in zip(starts, ends, strict=True)))
    return words


def wants_log_probs(tensors: Mapping[str, "Tensor"]) -> bool:
    """Return whether the request asks for log probabilities. As in FasterTransformer, row 0 decides."""
    asked = tensors.get("is_return_log_probs")
    return asked is not None and bool(asked.flatten()[0])


def outputs(
    tensors: Mapping[str, "Tensor"], rows: Sequence[RequestRow], answers: Sequence[Answer], end_id: int
) -> dict[str, "Tensor"]:
    """Return the response's tensors; `end_id` is the padding behind the texts of rows that have no end_id."""
    import torch

    most = max(row.output_length for row in rows)
    width = tensors["input_ids"].shape[1] + most
    ends = [end_id if row.end_id is None else row.end_id for row in rows]
    # [batch, beams, tokens], always with one beam
    ids = torch.tensor(ends)[:, None, None].repeat(1, 1, width)
    log_probs = torch.zeros(len(rows), 1, most)
    for index, answer in enumerate(answers):
        ids[index, 0, : len(answer.ids)] = torch.tensor(answer.ids)
        log_probs[index, 0, : len(answer.log_probs)] = torch.tensor(answer.log_probs)
    lengths = torch.tensor([[len(answer.ids)] for answer in answers])
    by_name = {"output_ids": _unsigned(ids), "sequence_length": _unsigned(lengths)}
    if wants_log_probs(tensors):
        by_name |= {"cum_log_probs": log_probs.sum(-1), "output_log_probs": log_probs}
    return by_name


def _unsigned(values: "Tensor") -> "Tensor":
    """Convert to uint32. Call this last, because torch has few operators for uint32."""
    import torch

    return values.to(torch.int32).contiguous().view(torch.uint32)


# From JSON to tensors, for a server without Triton


def tensors_from_json(asked: Mapping[str, Any]) -> dict[str, "Tensor"]:
    """Return the tensors of a request by name, given its JSON. Raises UsageError for what Triton, too, refuses."""
    declared, given = {one.name: one for one in INPUTS}, {one["name"] for one in asked["inputs"]}
    if unknown := sorted(given - set(declared)):
        raise UsageError(tr("inputs: {name}: no such input", name=unknown[0]))
    if missing := sorted(name for name, one in declared.items() if not one.optional and name not in given):
        raise UsageError(tr("inputs: {name}: missing", name=missing[0]))
    rows = next(sum(one["shape"][:1]) for one in asked["inputs"] if one["name"] == "input_ids")
    return {one["name"]: _tensor_from_json(one, declared[one["name"]], rows) for one in asked["inputs"]}


def _tensor_from_json(sent: Mapping[str, Any], declared: TritonTensor, rows: int) -> "Tensor":
    import torch

    name, dtype, shape = sent["name"], sent["datatype"], sent["shape"]
    if dtype != declared.dtype:
        message = tr_noop("{name}: {kind} is not allowed; allowed: {allowed}")
        raise UsageError(tr(message, name=name, kind=dtype, allowed=declared.dtype))
    sizes = (max(rows, 1), *declared.dims)
    fits = [size >= 0 and allowed in (size, -1) for size, allowed in zip(shape, sizes, strict=False)]
    if len(shape) != len(sizes) or not all(fits):
        allowed = ", ".join("n" if size == -1 else str(size) for size in sizes)
        message = tr_noop("{name}: shape {shape} is not allowed; allowed: [{allowed}]")
        raise UsageError(tr(message, name=name, shape=shape, allowed=allowed))
    return torch.from_numpy(np.array(sent["data"], DTYPES[dtype]).reshape(shape))


def wanted_outputs(asked: Mapping[str, Any]) -> set[str]:
    """Return the names of the outputs that a request asks for, all if it names none, as Triton does."""
    names = {tensor.name for tensor in OUTPUTS}
    wanted = {tensor["name"] for tensor in asked.get("outputs", [])}
    if unknown := sorted(wanted - names):
        raise UsageError(
            tr("outputs: {name}: no such output; allowed: {allowed}", name=unknown[0], allowed=", ".join(sorted(names)))
        )
    return wanted or names

"""Conversion of request tensors to engine requests, and of engine responses to tensors. Uses torch, but not Triton."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.serving.repository import INPUTS, OUTPUTS
from course_lib.serving.request import Answer, TextRequest, Word

# Request tensors with one value per sequence, and their fields in TextRequest
FIELDS = {tensor.name: tensor.field for tensor in INPUTS if tensor.field}
NAMES = [tensor.name for tensor in INPUTS]
LISTS = ("bad_words_list", "stop_words_list")


def rows_of(tensors: Mapping[str, Tensor]) -> list[TextRequest]:
    """Return a TextRequest for each sequence in a request; optional tensors may be missing."""
    ids: list[list[int]] = tensors["input_ids"].tolist()
    batch = len(ids)
    numbers = {name: _numbers(name, tensor) for name, tensor in tensors.items() if name not in ("input_ids", *LISTS)}
    words = {name: _words(name, tensors[name]) if name in tensors else [()] * batch for name in LISTS}
    _require_lengths(ids, numbers["input_lengths"])
    requested = []
    for index, (row, length) in enumerate(zip(ids, numbers["input_lengths"], strict=True)):
        own: dict[str, Any] = {FIELDS[name]: values[index] for name, values in numbers.items() if name in FIELDS}
        own |= {"bad_words": words["bad_words_list"][index], "stop_words": words["stop_words_list"][index]}
        requested.append(TextRequest(tuple(row[:length]), numbers["request_output_len"][index], **own))
    return requested


def _require_lengths(ids: list[list[int]], lengths: list[int]) -> None:
    """Raise UsageError if the lengths do not fit the ids: the longest row fills the tensor, the others are padded.

    One column may be padding: it stands for no input, which a tensor cannot hold.
    """
    width, longest = len(ids[0]), max(lengths)
    if longest > width or (longest < width and (longest or width > 1)):
        raise UsageError(
            tr(
                "input_lengths: {longest} is not allowed; the longest row of input_ids has {width} ids",
                longest=longest, width=width,
            )
        )  # fmt: skip


def wants_log_probs(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the request asks for log probabilities. As in FasterTransformer, sequence 0 decides."""
    asked = tensors.get("is_return_log_probs")
    return asked is not None and bool(asked.flatten()[0])


def _numbers(name: str, tensor: Tensor) -> list[Any]:
    """Return one number for each sequence from a tensor [B] or [B, 1]."""
    if tensor.numel() != len(tensor):
        raise UsageError(f"{name}: shape {list(tensor.shape)} is not allowed; allowed: one number for each row")
    return list(tensor.flatten().tolist())


def _words(name: str, tensor: Tensor) -> list[tuple[Word, ...]]:
    """Return the words for each sequence from a tensor [B, 2, n]. This is the inverse of client.word_list."""
    words = []
    for ids, ends in tensor.tolist():
        ends = [end for end in ends if end >= 0]
        starts = [0, *ends][: len(ends)]
        if any(not start < end <= len(ids) for start, end in zip(starts, ends, strict=True)):
            raise UsageError(f"{name}: ends {ends} are not allowed; allowed: increasing numbers from 1 to {len(ids)}")
        words.append(tuple(tuple(ids[start:end]) for start, end in zip(starts, ends, strict=True)))
    return words


def outputs(
    tensors: Mapping[str, Tensor], asked: Sequence[TextRequest], answers: Sequence[Answer], end_id: int
) -> dict[str, Tensor]:
    """Return the output tensors for a request; `end_id` is the padding after the texts of a row that has none."""
    most = max(row.output_length for row in asked)
    width = tensors["input_ids"].shape[1] + most
    ends = [end_id if row.end_id is None else row.end_id for row in asked]
    # [batch, beams, tokens], always with one beam
    ids = torch.tensor(ends)[:, None, None].repeat(1, 1, width)
    log_probs = torch.zeros(len(asked), 1, most)
    for index, answer in enumerate(answers):
        ids[index, 0, : len(answer.ids)] = torch.tensor(answer.ids)
        log_probs[index, 0, : len(answer.log_probs)] = torch.tensor(answer.log_probs)
    lengths = torch.tensor([[len(answer.ids)] for answer in answers])
    by_name = {"output_ids": _unsigned(ids), "sequence_length": _unsigned(lengths)}
    if wants_log_probs(tensors):
        by_name |= {"cum_log_probs": log_probs.sum(-1), "output_log_probs": log_probs}
    return {tensor.name: by_name[tensor.name] for tensor in OUTPUTS if tensor.name in by_name}


def _unsigned(values: Tensor) -> Tensor:
    """Convert to uint32. Call this last, because torch has few operators for uint32."""
    return values.to(torch.int32).contiguous().view(torch.uint32)

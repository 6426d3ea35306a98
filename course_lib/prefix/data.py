"""From JSON lines to samples: the ids of a text, or of a prompt and its target. Rows and batches are samples.py's.

The text reaches the tokenizer as the base was trained: normalized and segmented for a base of the course, as it stands for any other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from course_lib.documents import read_batches
from course_lib.errors import CourseError, UsageError
from course_lib.prefix.config import DataConfig
from course_lib.pretrain.text_codec import TextCodec

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Sample:
    """Ids without begin and end of text. The prompt is empty but for pairs; the loss is on the target."""

    prompt: list[int]
    target: list[int]
    line: int  # of the file, from 1


@dataclass(frozen=True)
class TaskData:
    """The samples of a file in its order, cut into a part for training and one held out."""

    path: Path
    train: list[Sample]
    held_out: list[Sample]
    overlong: int  # lines that alone exceed data.max_length; they are kept whole
    unknown: int  # samples with a character that the tokenizer does not know

    def summary(self) -> str:
        """One line."""
        said = [f"{self.path.name}: {len(self.train):,} samples, {len(self.held_out):,} held out"]
        if self.overlong:
            said.append(f"{self.overlong:,} of a line longer than data.max_length, kept whole")
        if self.unknown:
            said.append(f"{self.unknown:,} with characters that the tokenizer does not know")
        return "; ".join(said)


def load(settings: DataConfig, codec: TextCodec) -> TaskData:
    """Reads data.input. Raises CourseError naming file and line of what is no sample, UsageError for sizes that the file does not have."""
    if settings.input is None:
        raise UsageError('data.input: not set; give JSON lines with "text", for pairs with "prompt" and "target"')
    path, encode = settings.input, partial(_encode, codec)
    samples: list[Sample] = []
    for number, document in _documents(path):
        if settings.form == "pairs":
            prompt, target = (_string(document, key, path, number) for key in ("prompt", "target"))
            found = [Sample(encode(prompt) if prompt.strip() else [], encode(target), number)]
        else:
            text = _string(document, "text", path, number)
            pieces = (
                pack(text, settings.suffix, settings.max_length, encode) if settings.form == "lines" else [encode(text)]
            )
            found = [Sample([], ids, number) for ids in pieces]
        if not all(sample.target for sample in found) or not found:
            raise CourseError(f"{path}, line {number}: nothing to learn: the text is empty")
        samples += found
    train, held_out = split(samples, settings)
    overlong = sum(len(sample.target) > settings.max_length for sample in samples) if settings.form == "lines" else 0
    strange = codec.tokenizer.unk_token_id
    unknown = sum(strange in sample.prompt or strange in sample.target for sample in samples)
    return TaskData(path, train, held_out, overlong, unknown)


def pack(text: str, suffix: str, limit: int, encode: Encode) -> Iterator[list[int]]:
    """Ids of pieces of at most `limit` tokens: as many lines as fit, each with the suffix, joined by line breaks; blank lines are left out.

    Every line is in a piece, the last ones of a text too. A line that is too long by itself is a piece of its own, whole: cut, it would
    teach the suffix in the middle of a sentence.
    """
    piece, ids = "", list[int]()
    for line in filter(str.strip, text.splitlines()):
        longer = f"{piece}\n{line}{suffix}" if piece else line + suffix
        encoded = encode(longer)
        if piece and len(encoded) > limit:
            yield ids
            longer = line + suffix
            encoded = encode(longer)
        piece, ids = longer, encoded
    if piece:
        yield ids


def split(samples: list[Sample], settings: DataConfig) -> tuple[list[Sample], list[Sample]]:
    """The first data.train_size samples and the last data.dev_size. Raises UsageError if there are fewer than both."""
    held_out = _count(settings.dev_size, len(samples))
    train = len(samples) - held_out if settings.train_size is None else _count(settings.train_size, len(samples))
    if train < 1 or train + held_out > len(samples):
        raise UsageError(
            f"data.train_size, data.dev_size: {settings.train_size}, {settings.dev_size} are not allowed: {settings.input} has {len(samples)} samples"
        )
    return samples[:train], samples[len(samples) - held_out :]


def _count(size: float, total: int) -> int:
    return size if isinstance(size, int) else round(size * total)


def _encode(codec: TextCodec, text: str) -> list[int]:
    """Ids of a text without an end: a tokenizer's own, or one that is written out in the text, would double ours."""
    ids = codec.encode(text)
    while ids and ids[-1] == codec.tokenizer.eos_token_id:
        ids.pop()
    return ids


def _documents(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each line that is not blank. Raises CourseError naming the line that is no object."""
    for batch in read_batches(path):
        for number, line in batch.numbered():
            if line.isspace():
                continue
            try:
                found: Any = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise CourseError(f"{path}, line {number}: not readable as JSON: {error}") from None
            if not isinstance(found, dict):
                raise CourseError(f"{path}, line {number}: expected an object, found {line[:60]!r}")
            yield number, found


def _string(document: dict[str, Any], key: str, path: Path, number: int) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise CourseError(f'{path}, line {number}: expected a string "{key}", found {orjson.dumps(document)[:60]!r}')
    return value

"""Samples from JSON Lines: the token ids of a text, or of a prompt and its target. samples.py makes batches of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from course_lib.documents import json_objects, read_batches
from course_lib.errors import CourseError, UsageError
from course_lib.language.words import tr
from course_lib.prefix.config import DataConfig
from course_lib.pretrain.text_codec import TextCodec

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Sample:
    """Token ids of a sample, without begin-of-text and end-of-text tokens."""

    prompt: list[int]  # empty except for pairs
    target: list[int]  # what is learned
    line: int  # line number in the file, starting at 1
    cut: bool = False  # whether the end of the target is missing


@dataclass(frozen=True)
class TaskData:
    """The samples from a file, in file order, split into training and held-out samples."""

    path: Path
    train: list[Sample]
    held_out: list[Sample]
    overlong: int  # number of single-line samples longer than data.max_length, which are not truncated
    unknown: int  # number of samples with a character that the tokenizer does not know
    too_long: int = 0  # number of samples with too many tokens for the base, which are left out or cut
    are_cut: bool = False

    def summary(self) -> str:
        """Return a one-line summary of the counts."""
        sizes = {"name": self.path.name, "train": len(self.train), "held_out": len(self.held_out)}
        counts = [tr("{name}: {train:,} samples, {held_out:,} held out", **sizes)]
        if self.overlong:
            counts.append(tr("{number:,} of a single line longer than data.max_length, not cut", number=self.overlong))
        if self.unknown:
            counts.append(tr("{number:,} with characters that the tokenizer does not know", number=self.unknown))
        if self.too_long and self.are_cut:
            counts.append(tr("{number:,} cut: too long for the base", number=self.too_long))
        elif self.too_long:
            counts.append(tr("{number:,} left out: too long for the base", number=self.too_long))
        return "; ".join(counts)


def load(settings: DataConfig, codec: TextCodec, positions: int | None = None) -> TaskData:
    """Read the samples from data.input and split them into training and held-out samples.

    Args:
        settings: how texts are turned into samples.
        codec: the base's text codec.
        positions: positions that the base has for a sample and its begin-of-text token; None if there is no limit.
    """
    if settings.input is None:
        raise UsageError('data.input: not set; give JSON lines with "text", or for pairs "prompt" and "target"')
    path, encode = settings.input, partial(_encode, codec)
    samples: list[Sample] = []
    pairs, packed = settings.form == "pairs", settings.form == "lines"
    keys = ("prompt", "target") if pairs else ("text",)
    for number, document in (each for batch in read_batches(path) for each in json_objects(batch, *keys)):
        prompt = encode(document["prompt"]) if pairs and document["prompt"].strip() else []
        text = document[keys[-1]]
        targets = list(pack(text, settings.suffix, settings.max_length, encode)) if packed else [encode(text)]
        if not targets or not all(targets):
            raise CourseError(f"{path}, line {number}: nothing to learn: the text is empty")
        samples += [Sample(prompt, target, number) for target in targets]
    samples, too_long = fitted(samples, settings, positions)
    train, held_out = split(samples, settings)
    overlong = sum(len(sample.target) > settings.max_length for sample in samples) if packed else 0
    unknown_id = codec.tokenizer.unk_token_id
    unknown = sum(unknown_id in sample.prompt or unknown_id in sample.target for sample in samples)
    return TaskData(path, train, held_out, overlong, unknown, too_long, settings.too_long == "cut")


def fitted(samples: list[Sample], settings: DataConfig, positions: int | None) -> tuple[list[Sample], int]:
    """Return samples that fit the base, and the number of those that were left out or cut.

    A prompt without room for a target is left out: nothing of the sample can be learned.
    """
    if positions is None:
        return samples, 0
    kept, too_long = list[Sample](), 0
    for sample in samples:
        begin = settings.begin != "without" and not sample.prompt
        room = positions - begin - len(sample.prompt)
        if len(sample.target) <= room:
            kept.append(sample)
            continue
        too_long += 1
        if settings.too_long == "cut" and room > 1:
            kept.append(replace(sample, target=sample.target[:room], cut=True))
    if not kept:
        raise UsageError(
            f"data.too_long: {settings.too_long} leaves no sample of {settings.input}: all have more tokens than the "
            f"base has positions beside the prefix ({positions}); allowed: shorter texts, or cut"
        )
    return kept, too_long


def pack(text: str, suffix: str, limit: int, encode: Encode) -> Iterator[list[int]]:
    """Split a text into pieces of as many lines as fit in `limit` tokens, and yield the token ids of each.

    Each line is followed by the suffix. A longer line is a piece of its own: cut, it would teach the model to write the
    suffix in the middle of a sentence.
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
    """Return the training samples, and the last data.dev_size samples."""
    size = settings.dev_size
    train = len(samples) - (size if isinstance(size, int) else round(size * len(samples)))
    if train < 1:
        raise UsageError(f"data.dev_size: {size} is not allowed: {settings.input} has {len(samples)} samples")
    return samples[:train], samples[train:]


def _encode(codec: TextCodec, text: str) -> list[int]:
    """Return the token ids of a text without the end-of-text tokens written at its end: samples.rows adds one."""
    end = codec.tokenizer.eos_token
    while end and text.endswith(end):
        text = text.removesuffix(end)
    return codec.encode(text)

"""Text to token ids on disk: what `course tokenize` does, in parallel and in order.

Segmented text repeats its words, so the ids of a word are remembered as the bytes they become; the result is that of encoding each
document as a whole (`encode_batch_fast`). The file format is indexed.py's. Nothing here imports torch or transformers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, pre_tokenizers

from course_lib.documents import Batch, read_batches, texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import read_json, require_other
from course_lib.parallel import ordered_map
from course_lib.pretrain.indexed import IndexedWriter, dtype_for, files_of
from course_lib.progress import progress
from course_lib.subword import folder
from course_lib.subword.text import is_segmented

REMEMBERED = 1 << 18  # words, some 50 MB; frequent ones come early, so the first are kept
LONGEST = 64  # characters of a word worth remembering


@dataclass
class TokenizeReport:
    """What one run did."""

    documents: int = 0
    tokens: int = 0
    unknown: int = 0  # tokens that are <unk>
    bytes_read: int = 0
    seconds: float = 0.0

    def summary(self) -> str:
        """One line for the terminal."""
        seconds = max(self.seconds, 1e-9)
        return (
            f"{self.documents} documents, {self.tokens} tokens ({self.unknown / max(self.tokens, 1):.2%} unknown) in {self.seconds:.1f} s "
            f"({self.tokens / seconds / 1e6:.2f} million tokens/s, {self.bytes_read / seconds / 1e6:.1f} MB/s)"
        )


def tokenize(
    sources: Sequence[Path], tokenizer: Path, prefix: Path, workers: int = 1, append_eod: bool = False
) -> TokenizeReport:
    """Writes PREFIX.bin and PREFIX.idx, a sequence per document; the same bytes for any number of workers.

    .txt is segmented text and taken as it stands; .jsonl is raw and prepared as the tokenizer's training text was. A folder without
    preparation.json (not of this course) takes both as they stand. `append_eod` ends every document that has tokens with the eos token.
    Raises CourseError naming file and line of unreadable input, UsageError if input and tokenizer do not go together.
    """
    segmented = is_segmented(sources)
    for source in sources:
        for product in files_of(prefix):
            require_other(source, product)
    _encoder.cache_clear()  # the folder may hold another tokenizer now
    encoder = _encoder(tokenizer)  # copied workers have it already
    if segmented and encoder.codec and not encoder.codec.preparation.segmented:
        raise UsageError(f"{sources[0]}: segmented text, but {tokenizer} was trained on unsegmented; allowed: .jsonl")
    if append_eod and encoder.eod is None:
        raise UsageError(f"--append-eod: {tokenizer} has no eos_token in its tokenizer_config.json")
    report = TokenizeReport()
    started = perf_counter()
    size = sum(source.stat().st_size for source in sources)
    batches = (batch for source in sources for batch in read_batches(source))
    encoded = ordered_map(partial(_encode_batch, tokenizer, not segmented, append_eod), batches, workers)
    with IndexedWriter(prefix, encoder.dtype) as writer, progress(size, "B", "tokenizing") as bar:
        for part in encoded:
            ids = np.frombuffer(part.ids, encoder.dtype)
            writer.append(ids, part.sizes)
            report.documents += len(part.sizes)
            report.tokens += len(ids)
            report.unknown += int(np.count_nonzero(ids == encoder.unknown))
            report.bytes_read += part.bytes_read
            bar.update(part.bytes_read)
    report.seconds = perf_counter() - started
    return report


class Encoder:
    """A tokenizer folder as a function from documents to the bytes of their ids, without specials. Raises CourseError if it is none."""

    def __init__(self, place: Path) -> None:
        try:
            self.codec = folder.load(place) if (place / "preparation.json").exists() else None
            self.tokenizer = self.codec.tokenizer if self.codec else Tokenizer.from_file(str(place / "tokenizer.json"))
        except CourseError:
            raise
        except Exception as error:  # the library raises no narrower one
            raise CourseError(f"{place}: not a tokenizer folder, no tokenizer.json that can be read: {error}") from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.dtype = dtype_for(max(self.tokenizer.get_vocab().values()) + 1)
        self.unknown = _special(self.tokenizer, place, "unk_token")
        self.eod = _special(self.tokenizer, place, "eos_token")
        self.words = _Words(self.tokenizer, self.dtype) if _splits_at_spaces(self.tokenizer) else None

    def prepared(self, text: str) -> str:
        """A raw text as the tokenizer expects it."""
        return self.codec.prepare(text) if self.codec else text

    def encode(self, text: str) -> bytes:
        """The ids of one prepared document, in `dtype`."""
        if self.words is not None:
            return self.words.encode(text)
        (encoding,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)  # workers, not threads
        return np.array(encoding.ids, self.dtype).tobytes()


class _Words(dict[str, bytes]):
    """The ids of words met so far. A word is what lies between two spaces; Whitespace also divides at line breaks, Metaspace keeps
    the space before a word as a part of it."""

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype[Any]) -> None:
        super().__init__()
        self.tokenizer, self.dtype = tokenizer, dtype
        self.lead = " " if isinstance(tokenizer.pre_tokenizer, pre_tokenizers.Metaspace) else ""

    def encode(self, text: str) -> bytes:
        if not self.lead:
            return b"".join(map(self.__getitem__, text.replace("\n", " ").split(" ")))
        first, *others = text.split(" ")
        return self._ids(first) + b"".join(map(self.__getitem__, others))

    def __missing__(self, word: str) -> bytes:
        ids = self._ids(self.lead + word)
        if len(self) < REMEMBERED and len(word) <= LONGEST:
            self[word] = ids
        return ids

    def _ids(self, text: str) -> bytes:
        return np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, self.dtype).tobytes()


def _splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Whether words encoded one by one give the ids of the text: nothing in the tokenizer looks across a space."""
    splitter = tokenizer.pre_tokenizer
    divides = isinstance(splitter, pre_tokenizers.Whitespace | pre_tokenizers.WhitespaceSplit) or (
        isinstance(splitter, pre_tokenizers.Metaspace) and splitter.split
    )
    plain_tokens = all(
        not (token.single_word or token.lstrip or token.rstrip or " " in token.content or "\n" in token.content)
        for token in tokenizer.get_added_tokens_decoder().values()
    )
    return divides and plain_tokens and tokenizer.normalizer is None and not getattr(tokenizer.model, "dropout", None)


def _special(tokenizer: Tokenizer, place: Path, key: str) -> int | None:
    """The id of a token named in tokenizer_config.json, if there is one."""
    path = place / "tokenizer_config.json"
    name = read_json(path).get(key) if path.exists() else None
    content = name.get("content") if isinstance(name, dict) else name
    return tokenizer.token_to_id(content) if isinstance(content, str) else None


@lru_cache(maxsize=1)
def _encoder(place: Path) -> Encoder:
    """One per process, made on first use."""
    return Encoder(place)


@dataclass(frozen=True)
class _Encoded:
    ids: bytes
    sizes: npt.NDArray[np.int32]  # tokens of each document
    bytes_read: int


def _encode_batch(place: Path, raw: bool, append_eod: bool, batch: Batch) -> _Encoded:
    encoder = _encoder(place)
    documents = [encoder.encode(encoder.prepared(text) if raw else text) for text in texts(batch)]
    if append_eod:
        eod = np.array([encoder.eod], encoder.dtype).tobytes()
        documents = [ids + eod if ids else ids for ids in documents]
    sizes = np.array([len(ids) for ids in documents], np.int32) // encoder.dtype.itemsize
    return _Encoded(b"".join(documents), sizes, batch.size)

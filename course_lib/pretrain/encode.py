"""Parallel tokenization of text files into token files, in document order, for `course tokenize`.

Words recur often in segmented text, so their ids are cached. The ids are the same as if documents were encoded whole.
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

from course_lib.checkpoints import text_tokenizer, tokenizer_json
from course_lib.documents import LineBatch, read_batches, texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import require_other
from course_lib.language.words import tr
from course_lib.notebooks.progress import progress
from course_lib.parallel import ordered_map
from course_lib.pretrain.indexed import IndexedWriter, dtype_for, files_of
from course_lib.subword import folder
from course_lib.subword.text import is_segmented

# Maximum number of cached words (about 50 MB).
REMEMBERED = 1 << 18


@dataclass
class TokenizeReport:
    """Counts and duration of a tokenization run."""

    documents: int = 0
    tokens: int = 0
    unknown: int = 0  # number of unknown tokens
    bytes_read: int = 0
    seconds: float = 0.0

    def summary(self) -> str:
        """Return a one-line summary."""
        seconds = max(self.seconds, 1e-9)
        shares = {"unknown": self.unknown / max(self.tokens, 1), "rate": self.tokens / seconds / 1e6}
        return tr(
            "{documents} documents, {tokens} tokens ({unknown:.2%} unknown) in {seconds:.1f} s ({rate:.2f} million "
            "tokens/s, {speed:.1f} MB/s)",
            **vars(self) | shares | {"speed": self.bytes_read / seconds / 1e6},
        )


def tokenize(
    sources: Sequence[Path], tokenizer: Path, prefix: Path, workers: int = 1, append_eod: bool = False
) -> TokenizeReport:
    """Write PREFIX.bin and PREFIX.idx, with one sequence per document; the number of workers does not affect them.

    .txt sources are segmented text, which is encoded unchanged. Documents in .jsonl sources are first prepared like the
    tokenizer's training text. `append_eod` ends every document that is not empty with the eos token.
    """
    segmented = is_segmented(sources)
    for source in sources:
        for product in files_of(prefix):
            require_other(source, product)
    # The tokenizer in the folder may have changed since the last call.
    _encoder.cache_clear()
    encoder = _encoder(tokenizer, segmented)
    if segmented and encoder.codec and not encoder.codec.preparation.segmented:
        raise UsageError(f"{sources[0]}: segmented text, but {tokenizer} encodes unsegmented; allowed: .jsonl")
    if append_eod and encoder.eod is None:
        raise UsageError(f"--append-eod: {tokenizer} has no eos_token in its tokenizer_config.json")
    report = TokenizeReport()
    started = perf_counter()
    size = sum(source.stat().st_size for source in sources)
    batches = (batch for source in sources for batch in read_batches(source))
    encoded = ordered_map(partial(_encode_batch, tokenizer, not segmented, append_eod), batches, workers)
    with IndexedWriter(prefix, encoder.dtype) as writer, progress(size, "B", "tokenizing") as bar:
        has_text = False
        for content, sizes, bytes_read, more in encoded:
            ids = np.frombuffer(content, encoder.dtype)
            writer.append(ids, sizes)
            report.documents += len(sizes)
            report.tokens += len(ids)
            report.unknown += int(np.count_nonzero(ids == encoder.unknown))
            report.bytes_read += bytes_read
            bar.update(bytes_read)
            has_text |= more
        if not has_text:
            raise CourseError(f"{', '.join(map(str, sources))}: no text in it, only white space")
    report.seconds = perf_counter() - started
    return report


class Encoder:
    """A tokenizer that returns a prepared document's token ids as bytes."""

    def __init__(self, path: Path, segmented: bool = False) -> None:
        """Load the tokenizer of a folder, for documents or for `segmented` text."""
        self.codec = folder.load(path) if (path / "preparation.json").exists() else None
        self.texts = text_tokenizer.load(path)
        # None if the folder has no tokenizer.json.
        self.tokenizer: Any = self.texts.json
        if segmented and self.codec:
            # Segmented text is in the form of the tokenizer's training text, in which <s> is a special token.
            self.tokenizer = tokenizer_json.read(path)
        self.dtype = dtype_for(max(self.texts.vocabulary.values()) + 1)
        self.unknown, self.eod = (self.texts.special_ids[key] for key in ("unk_token", "eos_token"))
        self.by_word = self.tokenizer is not None and _splits_at_spaces(self.tokenizer)
        # With Metaspace, the space before a word is part of the word.
        self.lead = " " if self.by_word and isinstance(_splitter(self.tokenizer), pre_tokenizers.Metaspace) else ""
        self.word = lru_cache(REMEMBERED)(lambda word: self._ids(self.lead + word))

    def prepared(self, text: str) -> str:
        """Return a raw document in the form that `encode` takes."""
        return self.codec.prepare(text) if self.codec else self.texts.written(text)

    def encode(self, text: str) -> bytes:
        """Return the token ids of one prepared document, as the bytes of an array of dtype `self.dtype`."""
        if not self.by_word:
            return self._ids(text)
        if not self.lead:
            return b"".join(map(self.word, text.replace("\n", " ").split(" ")))
        first, *others = text.split(" ")
        return self._ids(first) + b"".join(map(self.word, others))

    def _ids(self, text: str) -> bytes:
        if self.tokenizer is None:
            return np.array(self.texts.ids(text), self.dtype).tobytes()
        # Encode one text per call: the worker processes provide the parallelism, not the library's threads.
        (encoding,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoding.ids, self.dtype).tobytes()


def _splitter(tokenizer: Tokenizer) -> Any:
    """Return the pre-tokenizer, without those behind it that only part what it has split."""
    own = tokenizer.pre_tokenizer
    parts: Any = own if isinstance(own, pre_tokenizers.Sequence) else [own]
    first, *others = parts
    return first if all(isinstance(each, pre_tokenizers.Split) for each in others) else own


def _splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether encoding word by word gives the ids of the whole text: no part looks across spaces."""
    splitter = _splitter(tokenizer)
    divides = isinstance(splitter, pre_tokenizers.Whitespace | pre_tokenizers.WhitespaceSplit) or (
        isinstance(splitter, pre_tokenizers.Metaspace) and splitter.split
    )
    plain_tokens = all(
        not (token.single_word or token.lstrip or token.rstrip or " " in token.content or "\n" in token.content)
        for token in tokenizer.get_added_tokens_decoder().values()
    )
    return divides and plain_tokens and tokenizer.normalizer is None and not getattr(tokenizer.model, "dropout", None)


@lru_cache(maxsize=1)
def _encoder(path: Path, segmented: bool) -> Encoder:
    """Return the encoder of a folder, cached in each process."""
    return Encoder(path, segmented)


def _encode_batch(
    path: Path, raw: bool, append_eod: bool, batch: LineBatch
) -> tuple[bytes, npt.NDArray[np.int32], int, bool]:
    """Encode a batch of documents in a worker process.

    Return the ids, tokens of each document, bytes read, and whether there is more than white space.
    """
    encoder = _encoder(path, not raw)
    prepare = encoder.prepared if raw or encoder.codec is None else str
    eod = np.array([encoder.eod], encoder.dtype).tobytes() if append_eod else b""
    read = list(texts(batch))
    documents = [ids + eod if (ids := encoder.encode(prepare(text))) else b"" for text in read]
    sizes = np.array([len(ids) for ids in documents], np.int32) // encoder.dtype.itemsize
    return b"".join(documents), sizes, batch.size, not all(text == "" or text.isspace() for text in read)

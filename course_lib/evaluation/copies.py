"""Copied spans: which windows of texts stand in a training text, character by character. This module has no torch.

A model that copies writes long passages of its training text. Some windows of 20 characters stand there by chance, such
as quotations and common phrases; the share for human text that the model has not read says how many.

The training text is streamed past the windows, so memory grows with the windows and not with the training text. A hash
of each place of the training text selects the places that may equal a window (Karp and Rabin 1987, Efficient randomized
pattern-matching algorithms, https://doi.org/10.1147/rd.312.0249); these are compared as texts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import dataclasses as pydantic

from course_lib.evaluation.scoring import GeneratingModel, Sampling, one_line
from course_lib.evaluation.windows import WindowSettings
from course_lib.language.columns import aligned
from course_lib.language.words import tr, tr_noop
from course_lib.settings.config import STRICT, setting
from course_lib.world.passages import Passages

# Lengths of the windows [characters].
LENGTHS = (20, 30, 50)
# So many characters of a test text in a row make it contaminated.
CONTAMINATED = 50
# Characters of the training text that are compared at once.
AT_ONCE = 1_000_000
# Between two documents: a noncharacter, which no window holds.
BETWEEN = "\ufdd1"
# Any odd number: the golden ratio, as in Knuth's multiplicative hashing.
BASE = 0x9E3779B97F4A7C15

# The name of human text in the table.
HELD_OUT = tr_noop("held-out text")

# A prompt and the rest of its document.
Prompt = tuple[str, str]
# Texts by what wrote them and the sampling setting.
Texts = dict[tuple[str, str], list[str]]
Codes = npt.NDArray[np.uint64]
Group = TypeVar("Group")


@pydantic.dataclass(frozen=True, config=STRICT)
class CopySettings(WindowSettings):
    """How texts are scored, and which texts a model writes that are searched for copied spans."""

    texts: int = setting(48, "copied spans: texts that a model writes for each --top-p", ge=1, le=100_000)
    prompt: int = setting(12, "copied spans: characters of a held-out document that a text continues", ge=1)
    tokens: int = setting(150, "copied spans: longest text [tokens]", ge=1)
    temperature: float = setting(1.0, "copied spans: divides the logits", ge=0.01, le=1e6)
    seed: int = setting(1024, "copied spans: the same seed gives the same texts", ge=0, lt=1 << 31)


@dataclass(frozen=True)
class Copies:
    """What some texts have in common with a training text."""

    texts: int
    characters: int
    windows: dict[int, int]  # number of windows, by their length [characters]
    copied: dict[int, int]  # number of windows that stand in the training text
    longest: str  # the longest copied span; "" if it is shorter than the shortest window

    def share(self, length: int) -> float | None:
        """Return the share of the windows of a length that stand in the training text; None if there is no window."""
        return self.copied[length] / self.windows[length] if self.windows[length] else None


def prompts(documents: Iterable[str], settings: CopySettings) -> list[Prompt]:
    """Return the first characters of the first documents that have more, and the rest of each document."""
    found: list[Prompt] = []
    for document in documents:
        if len(found) == settings.texts:
            break
        if len(document) > settings.prompt:
            found.append((document[: settings.prompt], document[settings.prompt :]))
    return found


def samples(
    model: GeneratingModel, prompts: Sequence[Prompt], settings: CopySettings, top_p: float, bar: Any = None
) -> list[str]:
    """Return the model's continuation of each prompt; `bar` is advanced by texts."""
    texts: list[str] = []
    for at in range(0, len(prompts), settings.batch_size):
        batch = [prompt for prompt, _ in prompts[at : at + settings.batch_size]]
        # The random generator starts anew for each batch.
        texts += model.complete(batch, Sampling(settings.tokens, settings.temperature, top_p, settings.seed + at))
        if bar is not None:
            bar.update(len(batch))
    return texts


def beside_held_out(written: Texts, prompts: Sequence[Prompt]) -> Texts:
    """Return the texts that models wrote and the rests of the prompts' documents, cut to the longest text of each."""
    longest = [max(map(len, texts)) for texts in zip(*written.values(), strict=True)]
    rests = [rest[:size] for (_, rest), size in zip(prompts, longest, strict=True)]
    return written | {(HELD_OUT, ""): rests}


def copies(
    groups: Mapping[Group, Sequence[str]],
    training: Iterable[str],
    normalize: Callable[[str], str] = str,
    lengths: Sequence[int] = LENGTHS,
) -> dict[Group, Copies]:
    """Return what each group of raw texts has in common with raw training documents.

    `normalize` is applied to every text and document, without its line breaks. No window spans two of them.
    """
    search = CopySearch(groups, normalize, lengths)
    for _ in search.reading(normalize(one_line(document)) for document in training):
        pass
    return search.copies()


def contaminated(
    texts: Iterable[str],
    training: Iterable[str],
    normalize: Callable[[str], str] = str,
    length: int = CONTAMINATED,
) -> list[str]:
    """Return for each raw test text its first `length` characters in a row that stand in a raw training document.

    "" means that none do. A text of fewer characters counts only as a whole. `normalize` is applied to every text and
    document, without its line breaks.

    After OpenAI 2023, GPT-4 Technical Report, appendix C (https://arxiv.org/abs/2303.08774): it looked for three random
    parts of 50 characters, or for the whole of a shorter text. Here all parts are looked for, and punctuation counts.
    GPT-3's 8 to 13 words in a row (Brown et al. 2020, appendix C, https://arxiv.org/abs/2005.14165) need spaces.
    """
    tests = [normalize(one_line(text)) for text in texts]
    by_length: dict[int, list[str]] = {}
    for text in tests:
        by_length.setdefault(min(len(text), length), []).append(text)
    by_length.pop(0, None)
    windows = {size: _Windows([group], size) for size, group in by_length.items()}
    for batch in _batches(normalize(one_line(document)) for document in training if windows):
        part = BETWEEN.join(batch)
        for size, hashes in _hashes(part, [*windows]).items():
            windows[size].places(part, hashes)
    found = set[str]().union(*(each.found for each in windows.values()))
    parts = ((text[at : at + length] for at in range(max(len(text) - length, 0) + 1)) for text in tests)
    return [next((part for part in each if part in found), "") for each in parts]


class CopySearch(Generic[Group]):
    """A search of training documents for the windows of groups of texts."""

    def __init__(
        self,
        groups: Mapping[Group, Sequence[str]],
        normalize: Callable[[str], str] = str,
        lengths: Sequence[int] = LENGTHS,
    ) -> None:
        """Take raw texts, whose line breaks do not count and to which `normalize` is applied, and window lengths."""
        self.texts = {name: [normalize(one_line(text)) for text in group] for name, group in groups.items()}
        self.windows = {length: _Windows(self.texts.values(), length) for length in lengths}
        self.passages = {name: Passages(group) for name, group in self.texts.items()}
        self.longest = dict.fromkeys(self.texts, "")

    def reading(self, documents: Iterable[str], bar: Any = None) -> Iterator[str]:
        """Yield normalized training documents, and search them; `bar` is advanced by characters."""
        for batch in _batches(documents):
            self._search(BETWEEN.join(batch))
            for document in batch:
                if bar is not None:
                    bar.update(len(document))
                yield document

    def _search(self, part: str) -> None:
        hashes = _hashes(part, [*self.windows])
        places = {length: windows.places(part, hashes[length]) for length, windows in self.windows.items()}
        # A longer copied span consists of copied windows of the shortest length.
        shortest = min(self.windows)
        for span in _spans(part, places[shortest], shortest):
            for name, passages in self.passages.items():
                size = passages.longest(span) if len(span) > len(self.longest[name]) else 0
                if size > len(self.longest[name]):
                    parts = (span[at : at + size] for at in range(len(span) - size + 1))
                    self.longest[name] = next(each for each in parts if any(each in text for text in self.texts[name]))

    def copies(self) -> dict[Group, Copies]:
        """Return what each group of texts has in common with the documents that were read."""
        return {name: self._copies(group, self.longest[name]) for name, group in self.texts.items()}

    def _copies(self, texts: Sequence[str], longest: str) -> Copies:
        number = {length: sum(len(windows.of(text)) for text in texts) for length, windows in self.windows.items()}
        copied = {length: sum(map(windows.copied, texts)) for length, windows in self.windows.items()}
        # A window of another group has led to this passage if it is shorter than a window.
        longest = longest if len(longest) >= min(self.windows) else ""
        return Copies(len(texts), sum(map(len, texts)), number, copied, longest)


def table(results: Mapping[str, Mapping[str, Copies]]) -> str:
    """Return {model name: {sampling setting: copies}} as a text table, with the longest copied spans below it."""
    lengths = next(iter(next(iter(results.values())).values())).windows
    rows = [[tr("model"), tr("sampling"), tr("texts"), tr("characters"), *map(str, lengths), tr("longest")]]
    spans = []
    for model, by_setting in results.items():
        name = tr(model) if model == HELD_OUT else model
        for sampling, found in by_setting.items():
            shares = [_shown(found.share(length)) for length in lengths]
            longest = str(len(found.longest) or f"< {min(lengths)}")
            rows.append([name, sampling, f"{found.texts:,}", f"{found.characters:,}", *shares, longest])
            if found.longest:
                spans.append(f"{name} {sampling}".rstrip() + f": {found.longest}")
    lines = [
        tr("copied spans: share of the windows of so many characters that stand in the training text [%]"),
        *aligned(rows, right=range(2, len(rows[0]))),
    ]
    return "\n".join([*lines, *([tr("longest copied spans:"), *spans] if spans else [])])


def _shown(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f}"


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Yield documents in lists of about AT_ONCE characters."""
    held, size = list[str](), 0
    for document in documents:
        held.append(document)
        size += len(document)
        if size >= AT_ONCE:
            yield held
            held, size = [], 0
    if held:
        yield held


class _Windows:
    """The windows of one length in all texts, and those of them that were found."""

    def __init__(self, groups: Iterable[Sequence[str]], length: int) -> None:
        self.length = length
        self.known = {window for group in groups for text in group for window in self.of(text)}
        self.found: set[str] = set()
        # A table by the highest bits of a hash, with 64 places or more for each window, so that few other hashes meet a
        # True. It takes at most 64 MB.
        bits = min((64 * len(self.known) + 1).bit_length(), 26)
        self.shift = np.uint64(64 - bits)
        self.table = np.zeros(1 << bits, bool)
        hashes = _hashes(BETWEEN.join(self.known), [length])[length]
        self.table[hashes[:: length + 1] >> self.shift] = True

    def of(self, text: str) -> list[str]:
        """Return the windows of a text, in order."""
        return [text[at : at + self.length] for at in range(len(text) - self.length + 1)]

    def places(self, part: str, hashes: Codes) -> list[int]:
        """Return where a known window stands in a part of the training text, and remember the window."""
        likely = np.flatnonzero(self.table[hashes >> self.shift]).tolist()
        places = [at for at in likely if part[at : at + self.length] in self.known]
        self.found.update(part[at : at + self.length] for at in places)
        return places

    def copied(self, text: str) -> int:
        """Return how many windows of a text were found."""
        return sum(window in self.found for window in self.of(text))


def _hashes(text: str, lengths: Sequence[int]) -> dict[int, Codes]:
    """Return a hash of each window of a text, for each length: Σ c[i] · BASE^(length − i) modulo 2⁶⁴."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    # The hashes of windows whose lengths are powers of two, each made of two windows of half its length.
    powers, size = {1: codes * np.uint64(BASE)}, 1
    while 2 * size <= max(lengths):
        powers[2 * size] = _joined(powers[size], powers[size], size, size)
        size *= 2
    found = {}
    for length in lengths:
        # A window of 20 characters is one of 16 and one of 4.
        first, *others = [size for size in reversed(powers) if length & size]
        found[length], size = powers[first], first
        for other in others:
            found[length] = _joined(found[length], powers[other], size, other)
            size += other
    return found


def _joined(first: Codes, second: Codes, size: int, behind: int) -> Codes:
    """Return the hashes of windows of `size` characters and the `behind` characters behind them."""
    number = max(len(first) - behind, 0)
    return first[:number] * np.uint64(pow(BASE, behind, 1 << 64)) + second[size : size + number]


def _spans(part: str, places: Sequence[int], length: int) -> set[str]:
    """Return the texts that windows at consecutive places cover together."""
    spans, first = set(), 0
    for at in range(1, len(places) + 1):
        if at == len(places) or places[at] > places[at - 1] + 1:
            spans.add(part[places[first] : places[at - 1] + length])
            first = at
    return spans

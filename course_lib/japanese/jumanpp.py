"""Segmentation of lines into words with Juman++ v2 (https://github.com/ku-nlp/jumanpp), without losing text.

Juman++ drops a line without an error message if the line is too long, begins with "# " or is not UTF-8. It runs out of
memory on a long run of characters of one class. Its exit code does not show such failures. This module therefore cuts
lines into pieces that Juman++ can process, and compares the output with the text sent. If they differ, it sends the
two halves of the batch separately, and so on until the failing piece is found. That piece is kept, split only at
whitespace, and counted.

The caller starts the worker processes, with one segmenter in each. segment.py joins the words into a line.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError, UsageError

# Bytes; Juman++ drops longer lines.
LONGEST_PIECE = 4096
# Characters of one class; memory use in Juman++ grows with the cube of the run length: a run of 500 characters takes
# 0.5 GB, or 5 GB for some characters.
LONGEST_RUN = 100
# Bytes sent to one process.
BATCH = 1 << 18
# Number of failures whose text is kept.
EXAMPLES_KEPT = 20
# Separator between words in the output of Juman++; it never occurs in the text sent.
SEPARATOR = "\x1f"

# Characters that are never sent to Juman++; each is a word of its own.
UNFIT = re.compile("([\x00-\x08\x0a-\x1f\x7f\ud800-\udfff])")
WHITE = re.compile(f"[^\\S{SEPARATOR}]")
WORD = re.compile(r"\s|\S+")
# These characters belong to both the hiragana and the katakana class.
PROLONGED = "ー〜～∼"
# Character classes in Juman++ (characters.cc, getCodeType) whose runs become unknown words.
CLASSES = (
    # letters
    "@-\\[`-{¿-\u0100\u0370-\u04ff＠-［｀-｛",
    # hiragana
    f"\u3040-\u309f{PROLONGED}",
    # katakana
    f"\u30a0-\u30faヽヾヿ\uff66-\uff9f{PROLONGED}",
    # kanji
    "\u4e00-\u9fff々〇○",
)
RUN = re.compile("|".join(f"[{kind}]{{{LONGEST_RUN}}}(?=[{kind}])" for kind in CLASSES))
# Positions for cutting a long text: preferably after a sentence end, otherwise after a comma or whitespace.
GOOD_CUTS = (re.compile(r".*[。！？!?]", re.S), re.compile(r".*[、，,\s]", re.S))

PROBE = ("外国人参政権を持つ", "これは 本です")
NOT_FOUND = (
    "jumanpp: not found on PATH nor in $JUMANPP; build the official release with its model "
    "(github.com/ku-nlp/jumanpp, Releases), or use the segmenter mecab"
)
NO_MODEL = (
    "Juman++ has no model (a git checkout comes without one): build the official release, "
    "or write --model=FILE into ~/.config/jumanpp/jumandic.config"
)


@dataclass(frozen=True)
class Failure:
    """A piece of text that Juman++ could not analyze, with the reason."""

    piece: str
    reason: str


@dataclass(frozen=True)
class Morpheme:
    """A word in an analysis, with its Juman fields, such as 行き いき 行く 動詞 *."""

    surface: str
    reading: str
    base: str
    part_of_speech: str
    subclass: str


def find_binary() -> Path | None:
    """Return the path of the Juman++ executable: $JUMANPP (a path or a name), else `jumanpp` on PATH, else None.

    Raises UsageError if $JUMANPP is set but is not an executable.
    """
    wanted = os.environ.get("JUMANPP")
    path = shutil.which(wanted or "jumanpp")
    if wanted and path is None:
        raise UsageError(f"JUMANPP: {wanted!r} is no program; allowed: the path or name of the jumanpp binary")
    return Path(path) if path else None


class JumanppSegmenter:
    """A segmenter that splits lines into words with Juman++ v2.

    Every call starts its own short-lived processes, so a segmenter can be pickled and sent to worker processes.
    `failed_pieces` is the number of pieces that Juman++ could not analyze. `failures` contains the first EXAMPLES_KEPT
    of these pieces, each with the reason.
    """

    def __init__(self, binary: Path, model: Path | None = None, timeout: float = 60.0) -> None:
        """Check the executable by running it on two sentences; `model` overrides its configured model file.

        `timeout` is the time limit for a full batch of 256 kB [s]; a typical time is 0.5 s. The limit for a smaller
        batch is proportional to its size, but at least a quarter of `timeout`. Raises CourseError if the executable is
        not Juman++ v2 with a model.
        """
        self.binary, self.model, self.timeout = binary, model, timeout
        self.failed_pieces = 0
        self.failures: list[Failure] = []
        self._probe()

    @classmethod
    def from_path(cls) -> "JumanppSegmenter":
        """Return a segmenter that uses the Juman++ executable on this machine. Raises CourseError if there is none."""
        if binary := find_binary():
            return cls(binary)
        raise CourseError(NOT_FOUND)

    def words(self, lines: Sequence[str]) -> list[list[str]]:
        """Return the words in each line, for any text: `"".join(words) == line`.

        Each whitespace or control character is a word of its own. Raises CourseError only if Juman++ stops working
        altogether.
        """
        cut = [list(pieces(line)) for line in lines]
        sent = (piece for parts in cut for piece in parts if not UNFIT.match(piece))
        answers = (words for batch in _batches(sent) for words in self._analyse(batch))
        return [[word for part in parts for word in ([part] if UNFIT.match(part) else next(answers))] for parts in cut]

    def analyze(self, sentence: str) -> list[Morpheme]:
        """Return the words in a sentence with reading and part of speech, for examples.

        Joining the surfaces gives the sentence. pyknp only parses the output. It is not used to run Juman++, because it
        hangs on "# ", loses spaces and does not report long lines. Raises CourseError if pyknp is missing.
        """
        try:
            from pyknp import Morpheme as Parser
        except ImportError as error:
            raise CourseError(f"pyknp: cannot be imported ({error}); pip install pyknp 'setuptools<81'") from None
        morphemes: list[Morpheme] = []
        for piece in pieces(sentence):
            morphemes += [_unknown(piece)] if UNFIT.match(piece) else self._analyze_piece(piece, Parser)
        return morphemes

    def _run(self, batch: Sequence[str], *options: str) -> "subprocess.CompletedProcess[bytes]":
        """Run one process on the pieces, one per line. Raises subprocess.TimeoutExpired if it takes too long."""
        sent = "".join(f"{piece}\n" for piece in batch).encode()
        limit = self.timeout * max(0.25, len(sent) / BATCH)
        command = [str(self.binary), *([f"--model={self.model}"] if self.model else []), *options]
        try:
            return subprocess.run(command, input=sent, capture_output=True, timeout=limit, check=False)
        except OSError as error:
            raise CourseError(f"{self.binary}: cannot be started: {error.strerror}") from None

    def _segment(self, batch: Sequence[str]) -> tuple[list[list[str]], str]:
        """Run Juman++ on a batch and return the words in each piece and "".

        If Juman++ times out, or its output does not match the text sent, return [] and a description of the problem.
        """
        try:
            done = self._run(batch, "--segment", f"--segment-separator={SEPARATOR}")
        except subprocess.TimeoutExpired as error:
            return [], f"no answer within {error.timeout:g} s"
        answer = done.stdout.decode("utf-8", "replace")
        if answer.count("\n") != len(batch):
            return [], f"{answer.count(chr(10))} lines came back for {len(batch)} ({_last_words(done)})"
        if answer.replace(SEPARATOR, "") != "".join(f"{piece}\n" for piece in batch):
            return [], f"another text came back ({_last_words(done)})"
        return list(map(_words, answer.split("\n")[:-1])), ""

    def _analyse(self, batch: list[str]) -> list[list[str]]:
        """Return the words in each piece. After a failure, send the halves of the batch, down to the failing piece."""
        words, trouble = self._segment(batch)
        if not trouble:
            return words
        if len(batch) == 1:
            self._give_up(batch[0], trouble)
            return [WORD.findall(batch[0])]
        half = len(batch) // 2
        return self._analyse(batch[:half]) + self._analyse(batch[half:])

    def _give_up(self, piece: str, reason: str) -> None:
        """Count a piece that cannot be analyzed, after checking that Juman++ can still analyze other text."""
        self._probe()
        self.failed_pieces += 1
        if len(self.failures) < EXAMPLES_KEPT:
            self.failures.append(Failure(piece, reason))

    def _probe(self) -> None:
        words, trouble = self._segment(PROBE)
        if "Model file was not specified" in trouble:
            raise CourseError(f"{self.binary}: {NO_MODEL}")
        if trouble or len(words[0]) == 1:
            trouble = trouble or "no words were found"
            raise CourseError(f"{self.binary}: does not answer as Juman++ v2 does: {trouble}")

    def _analyze_piece(self, piece: str, parser: Any) -> list[Morpheme]:
        try:
            done = self._run([piece], "--juman")
        except subprocess.TimeoutExpired as error:
            self._give_up(piece, f"no answer within {error.timeout:g} s")
            return [_unknown(piece)]
        lines = done.stdout.decode("utf-8", "replace").split("\n")
        body = lines[: lines.index("EOS")] if "EOS" in lines else []
        # "@ " marks an alternative analysis of the previous word; "@ @ " is the word @ itself.
        best = [line for line in body if not line.startswith("@ ") or line.startswith("@ @ ")]
        try:
            morphemes = _aligned(piece, [parser(line) for line in best])
        except ValueError:
            # pyknp expects a number where the line has none.
            morphemes = []
        if not morphemes:
            self._give_up(piece, f"the joined words of the analysis differ from the text{_last_words(done)}")
        return morphemes or [_unknown(piece)]


def pieces(line: str) -> Iterator[str]:
    """Yield the line cut into pieces that Juman++ can process; joining the pieces restores the line.

    A piece that matches UNFIT must not be sent to Juman++.
    """
    for part in UNFIT.split(line):
        if UNFIT.match(part):
            yield part
        elif part:
            for piece in _short(part):
                # Juman++ treats a line that begins with "# " as a comment.
                if piece.startswith("# ") and piece != "# ":
                    yield "#"
                    piece = piece[1:]
                yield piece


def _short(text: str) -> Iterator[str]:
    """Yield the text cut inside long runs of one character class, then into pieces of at most LONGEST_PIECE bytes."""
    at = 0
    for end in (*(match.end() for match in RUN.finditer(text)), len(text)):
        while at < end:
            piece = text[at : min(end, at + LONGEST_PIECE)]
            encoded = piece.encode()
            if len(encoded) > LONGEST_PIECE or at + len(piece) < end:
                piece = _good_head(encoded[:LONGEST_PIECE].decode("utf-8", "ignore"))
            yield piece
            at += len(piece)


def _good_head(text: str) -> str:
    """Return the text up to the last good cutting position (GOOD_CUTS), or the whole text if there is none."""
    head = next((match for match in (cut.match(text) for cut in GOOD_CUTS) if match), None)
    return head.group() if head else text


def _batches(sent: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for piece in sent:
        batch.append(piece)
        size += len(piece.encode()) + 1
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _words(line: str) -> list[str]:
    """Return the words in a line of output; a word with whitespace inside, such as "( ^o^ )", is split there."""
    words = filter(None, line.split(SEPARATOR))
    return [part for word in words for part in WORD.findall(word)] if WHITE.search(line) else list(words)


def _last_words(done: "subprocess.CompletedProcess[bytes]") -> str:
    """Return a process's exit code and the first line of its standard error, for an error message."""
    first_line = done.stderr.decode("utf-8", "replace").strip().split("\n")[0][:200]
    return f"exit code {done.returncode}: {first_line}" if first_line else f"exit code {done.returncode}"


def _aligned(piece: str, parsed: list[Any]) -> list[Morpheme]:
    """Return pyknp's words with the surfaces taken from the text; [] if the joined words differ from the text.

    Juman++ writes a space as \\␣ and a tab as \\t, so its surfaces differ from the text.
    """
    words, at = [], 0
    for item in parsed:
        plain = item.midasi.replace("\\␣", " ").replace("\\t", "\t")
        surface = next((form for form in (item.midasi, plain) if form and piece.startswith(form, at)), "")
        if not surface:
            return []
        words.append(Morpheme(surface, item.yomi, item.genkei, item.hinsi, item.bunrui))
        at += len(surface)
    return words if at == len(piece) else []


def _unknown(text: str) -> Morpheme:
    return Morpheme(text, text, text, "未定義語", "その他")

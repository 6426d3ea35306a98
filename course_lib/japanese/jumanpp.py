"""Word boundaries by the Juman++ v2 program, in bulk, without the traps of piping text into it.

The program silently loses lines that are too long, begin with "# " or are not UTF-8, and dies of memory on a long run of one class of
character; its exit code says nothing. So lines are cut into pieces that it can carry, every answer is compared with what was sent, and what
does not come back whole is sent again in halves until the one bad piece is found: that is kept as it is and counted.
Starting several processes is the caller's work (one segmenter each); how words become a line is in segment.py.
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

LONGEST_PIECE = 4096  # bytes; the program drops a longer line
LONGEST_RUN = 100  # characters of one class; its memory grows with the cube (500 take 0.5 GB, for some characters 5 GB)
BATCH = 1 << 18  # bytes sent to one process
EXAMPLES_KEPT = 20  # failures remembered with their text
SEPARATOR = "\x1f"  # between words in the program's output; never in what is sent

UNFIT = re.compile("([\x00-\x08\x0a-\x1f\x7f\ud800-\udfff])")  # never sent; a word of its own
WHITE = re.compile(f"[^\\S{SEPARATOR}]")
WORD = re.compile(r"\s|\S+")
PROLONGED = "ー〜～∼"  # belong to hiragana and to katakana
CLASSES = (  # the program's own (characters.cc, getCodeType), those whose runs it makes unknown words of
    "@-\\[`-{¿-\u0100\u0370-\u04ff＠-［｀-｛",  # letters
    f"\u3040-\u309f{PROLONGED}",  # hiragana
    f"\u30a0-\u30faヽヾヿ\uff66-\uff9f{PROLONGED}",  # katakana
    "\u4e00-\u9fff々〇○",  # kanji
)
RUN = re.compile("|".join(f"[{kind}]{{{LONGEST_RUN}}}(?=[{kind}])" for kind in CLASSES))
GOOD_CUTS = (re.compile(r".*[。！？!?]", re.S), re.compile(r".*[、，,\s]", re.S))  # the best first

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
    """A piece of text that the program could not analyse, and what happened."""

    piece: str
    reason: str


@dataclass(frozen=True)
class Morpheme:
    """One word of an analysis, in Juman's terms: 行き いき 行く 動詞 *."""

    surface: str
    reading: str
    base: str
    part_of_speech: str
    subclass: str


def find_binary() -> Path | None:
    """The program: $JUMANPP (a path or a name), else `jumanpp` on PATH, else None. Raises UsageError for a $JUMANPP that is no program."""
    wanted = os.environ.get("JUMANPP")
    found = shutil.which(wanted or "jumanpp")
    if wanted and found is None:
        raise UsageError(f"JUMANPP: {wanted!r} is no program; allowed: the path or name of the jumanpp binary")
    return Path(found) if found else None


class JumanppSegmenter:
    """Juman++ v2 as a function from lines to words.

    Every call starts its own short-lived processes, so an object may be pickled or made anew in each worker.
    `failed_pieces` counts what could not be analysed, `failures` holds the first of them with the reason.
    """

    def __init__(self, binary: Path, model: Path | None = None, timeout: float = 60.0) -> None:
        """Tries the program on two sentences.

        `model` overrides the program's configured one. `timeout` is the time [s] allowed for a full batch of 256 kB (0.5 s is usual); a
        smaller one gets its share, at least a quarter. Raises CourseError if this is not Juman++ v2 with a model.
        """
        self.binary, self.model, self.timeout = binary, model, timeout
        self.failed_pieces = 0
        self.failures: list[Failure] = []
        self._probe()

    @classmethod
    def from_path(cls) -> "JumanppSegmenter":
        """The segmenter with the program found on this machine; raises CourseError where there is none."""
        binary = find_binary()
        if binary is None:
            raise CourseError(NOT_FOUND)
        return cls(binary)

    def words(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of every line (any text): `"".join(words) == line`. Each white-space and control character is a word of its own.

        Raises CourseError only if the program stops working altogether.
        """
        cut = [list(pieces(line)) for line in lines]
        sent = (piece for parts in cut for piece in parts if not UNFIT.match(piece))
        answers = (words for batch in _batches(sent) for words in self._analyse(batch))
        return [[word for part in parts for word in ([part] if UNFIT.match(part) else next(answers))] for parts in cut]

    def analyze(self, sentence: str) -> list[Morpheme]:
        """The words of a sentence with reading and part of speech, for examples; the surfaces add up to the sentence.

        The program's answer is read by pyknp, whose own way of calling it hangs on "# ", loses spaces and is silent about long lines.
        Raises CourseError where pyknp is missing.
        """
        parser = _pyknp_parser()
        found: list[Morpheme] = []
        for piece in pieces(sentence):
            found += [_unknown(piece)] if UNFIT.match(piece) else self._analyze_piece(piece, parser)
        return found

    def _command(self, *options: str) -> list[str]:
        return [str(self.binary), *([f"--model={self.model}"] if self.model else []), *options]

    def _run(self, batch: Sequence[str], *options: str) -> "subprocess.CompletedProcess[bytes]":
        """One process over the pieces. Raises TimeoutExpired."""
        sent = "".join(f"{piece}\n" for piece in batch).encode()
        limit = self.timeout * max(0.25, len(sent) / BATCH)
        try:
            return subprocess.run(self._command(*options), input=sent, capture_output=True, timeout=limit, check=False)
        except OSError as error:
            raise CourseError(f"{self.binary}: cannot be started: {error.strerror}") from None

    def _segment(self, batch: Sequence[str]) -> tuple[list[list[str]], str]:
        """(the words of every piece, "") if the answer is whole, else ([], what is wrong with it)."""
        try:
            done = self._run(batch, "--segment", f"--segment-separator={SEPARATOR}")
        except subprocess.TimeoutExpired as error:
            return [], f"no answer within {error.timeout:g} s"
        answer = done.stdout.decode("utf-8", "replace")
        if answer.count("\n") != len(batch):
            return [], f"{answer.count(chr(10))} lines came back for {len(batch)}{_last_words(done)}"
        if answer.replace(SEPARATOR, "") != "".join(f"{piece}\n" for piece in batch):
            return [], f"another text came back{_last_words(done)}"
        return list(map(_words, answer.split("\n")[:-1])), ""

    def _analyse(self, batch: list[str]) -> list[list[str]]:
        """The words of every piece; on failure the halves are tried, down to the piece that is to blame."""
        found, trouble = self._segment(batch)
        if not trouble:
            return found
        if len(batch) == 1:
            self._give_up(batch[0], trouble)
            return [WORD.findall(batch[0])]
        half = len(batch) // 2
        return self._analyse(batch[:half]) + self._analyse(batch[half:])

    def _give_up(self, piece: str, reason: str) -> None:
        """Counts a piece that cannot be analysed, having made sure that others can."""
        self._probe()
        self.failed_pieces += 1
        if len(self.failures) < EXAMPLES_KEPT:
            self.failures.append(Failure(piece, reason))

    def _probe(self) -> None:
        found, trouble = self._segment(PROBE)
        if "Model file was not specified" in trouble:
            raise CourseError(f"{self.binary}: {NO_MODEL}")
        if trouble or len(found[0]) == 1:
            raise CourseError(f"{self.binary}: does not answer as Juman++ v2 does: {trouble or 'no words were found'}")

    def _analyze_piece(self, piece: str, parser: Any) -> list[Morpheme]:
        try:
            done = self._run([piece], "--juman")
        except subprocess.TimeoutExpired as error:
            self._give_up(piece, f"no answer within {error.timeout:g} s")
            return [_unknown(piece)]
        lines = done.stdout.decode("utf-8", "replace").split("\n")
        body = lines[: lines.index("EOS")] if "EOS" in lines else []
        best = [
            line for line in body if not line.startswith("@ ") or line.startswith("@ @ ")
        ]  # "@ " is a second reading
        try:
            found = _aligned(piece, [parser(line) for line in best])
        except ValueError:  # pyknp reads a number where there is none
            found = []
        if not found:
            self._give_up(piece, f"the analysis does not add up to the text{_last_words(done)}")
        return found or [_unknown(piece)]


def pieces(line: str) -> Iterator[str]:
    """A line as pieces that the program can carry; they add up to the line. Those that UNFIT matches are not to be sent."""
    for part in UNFIT.split(line):
        if UNFIT.match(part):
            yield part
        elif part:
            for piece in _short(part):
                if piece.startswith("# ") and piece != "# ":  # the program would take it for a comment
                    yield "#"
                    piece = piece[1:]
                yield piece


def _short(text: str) -> Iterator[str]:
    """The text cut within long runs of one class, and then into pieces of at most LONGEST_PIECE bytes."""
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
    """The text up to the last good place to cut, if there is one."""
    found = next((match for match in (cut.match(text) for cut in GOOD_CUTS) if match), None)
    return found.group() if found else text


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
    """The words of an answered line, with white space inside a word (faces such as "( ^o^ )") taken out of it."""
    found = filter(None, line.split(SEPARATOR))
    return [part for word in found for part in WORD.findall(word)] if WHITE.search(line) else list(found)


def _last_words(done: "subprocess.CompletedProcess[bytes]") -> str:
    """How a process ended, for an error's one line."""
    said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0][:200]
    return f" (exit code {done.returncode}{': ' if said else ''}{said})"


def _pyknp_parser() -> Any:
    try:
        from pyknp import Morpheme as Parser
    except ImportError as error:
        raise CourseError(f"pyknp: cannot be imported ({error}); pip install pyknp 'setuptools<81'") from None
    return Parser


def _aligned(piece: str, found: list[Any]) -> list[Morpheme]:
    """pyknp's words with their surfaces as in the text (the program writes spaces as \\␣ and tabs as \\t); [] if they do not add up."""
    words, at = [], 0
    for item in found:
        plain = item.midasi.replace("\\␣", " ").replace("\\t", "\t")
        surface = next((form for form in (item.midasi, plain) if form and piece.startswith(form, at)), "")
        if not surface:
            return []
        words.append(Morpheme(surface, item.yomi, item.genkei, item.hinsi, item.bunrui))
        at += len(surface)
    return words if at == len(piece) else []


def _unknown(text: str) -> Morpheme:
    return Morpheme(text, text, text, "未定義語", "その他")

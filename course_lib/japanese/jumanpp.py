"""Segmentation of lines into words with Juman++ v2 (https://github.com/ku-nlp/jumanpp), without losing text.

Juman++ drops a line without an error message if it has over 4096 bytes, begins with "# " or is not UTF-8. A long run of
characters of one class takes all memory. The exit code does not show such failures. This module therefore cuts lines
into pieces that Juman++ can process, and compares the output with the text sent. If they differ, it sends the two
halves of the batch again, down to the failing piece, which is split only at whitespace and before and after "<".
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_lib.errors import CourseError, UsageError
from course_lib.japanese import mecab

# Characters of one class; memory use in Juman++ grows with the cube of the run length: a run of 500 characters takes
# 0.5 GB, or 5 GB for some characters.
LONGEST_RUN = 100
# Pieces that one process gets.
BATCH = 3000
# Separator between words in the output of Juman++; it never occurs in the text sent.
SEPARATOR = "\x1f"

# Characters that are never sent to Juman++; each is a word of its own.
UNFIT = re.compile("([\x00-\x08\x0a-\x1f\x7f\ud800-\udfff])")
WORD = re.compile(r"\s|\S+")
# Words of a piece that Juman++ cannot analyze. In segmented text, a word <s> would be a control token of the tokenizer.
WORD_OR_BRACKET = re.compile(r"[\s<]|[^\s<]+")
# These characters belong to both the hiragana and the katakana class.
PROLONGED = "ー〜～∼"
# Character classes in Juman++ (characters.cc, getCodeType) whose runs become unknown words: letters, hiragana,
# katakana, kanji.
CLASSES = (
    "@-\\[`-{¿-\u0100\u0370-\u04ff＠-［｀-｛",
    f"\u3040-\u309f{PROLONGED}",
    f"\u30a0-\u30faヽヾヿ\uff66-\uff9f{PROLONGED}",
    "\u4e00-\u9fff々〇○",
)
RUN = re.compile("|".join(f"[{kind}]{{{LONGEST_RUN}}}(?=[{kind}])" for kind in CLASSES))
PROBE = ("外国人参政権を持つ", "これは 本です")
NOT_FOUND = (
    "jumanpp: not found on PATH nor in $JUMANPP; build the official release with its model "
    "(github.com/ku-nlp/jumanpp, Releases), or use the segmenter mecab"
)


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
    """A segmenter that splits lines into words with Juman++ v2, by a short-lived process for each batch."""

    def __init__(self, binary: Path, timeout: float = 60.0) -> None:
        """Check the executable by running it; `timeout` is the time limit for a batch, which usually takes 0.5 s."""
        self.binary, self.timeout = binary, timeout
        self._probe()

    @classmethod
    def from_path(cls) -> "JumanppSegmenter":
        """Return a segmenter that uses the Juman++ executable on this machine. Raises CourseError if there is none."""
        if binary := find_binary():
            return cls(binary)
        raise CourseError(NOT_FOUND)

    def words(self, lines: Sequence[str]) -> tuple[list[list[str]], int]:
        """Return the words in each line, and the number of pieces that Juman++ could not analyze.

        For any text, `"".join(words) == line`; each whitespace or control character is a word of its own. Raises
        CourseError only if Juman++ stops working altogether.
        """
        line_pieces = [list(pieces(line)) for line in lines]
        sent = [piece for of_line in line_pieces for piece in of_line if not UNFIT.match(piece)]
        answers: list[list[str]] = []
        for start in range(0, len(sent), BATCH):
            answers += self._analyse(sent[start : start + BATCH])
        # An answer is empty if the piece could not be analyzed.
        answered = (words or WORD_OR_BRACKET.findall(piece) for words, piece in zip(answers, sent, strict=True))
        found: list[list[str]] = []
        for of_line in line_pieces:
            words: list[str] = []
            for piece in of_line:
                words += [piece] if UNFIT.match(piece) else next(answered)
            found.append(words)
        return found, answers.count([])

    def _analyse(self, batch: list[str]) -> list[list[str]]:
        """Return the words in each piece, [] for one that makes Juman++ fail, which is found by halving the batch."""
        words, trouble = self._segment(batch)
        if not trouble:
            return words
        if len(batch) == 1:
            # Is it the piece, or does the program not work any more?
            self._probe()
            return [[]]
        half = len(batch) // 2
        return self._analyse(batch[:half]) + self._analyse(batch[half:])

    def _segment(self, batch: Sequence[str]) -> tuple[list[list[str]], str]:
        """Run Juman++ on pieces, one per line, and return the words in each and "", or [] and what went wrong."""
        sent = "".join(f"{piece}\n" for piece in batch)
        command = [str(self.binary), "--segment", f"--segment-separator={SEPARATOR}"]
        try:
            done = subprocess.run(command, input=sent.encode(), capture_output=True, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            return [], f"no answer within {self.timeout:g} s"
        except OSError as error:
            raise CourseError(f"{self.binary}: cannot be started: {error.strerror}") from None
        answer = done.stdout.decode("utf-8", "replace")
        if answer.replace(SEPARATOR, "") != sent:
            why = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
            return [], f"{answer.count(chr(10))} lines came back for {len(batch)} (exit code {done.returncode}: {why})"
        # A word with whitespace inside, such as "( ^o^ )", is split there.
        lines = (line.split(SEPARATOR) for line in answer.split("\n")[:-1])
        return [[part for word in line for part in WORD.findall(word)] for line in lines], ""

    def _probe(self) -> None:
        words, trouble = self._segment(PROBE)
        if trouble or len(words[0]) == 1:
            trouble = trouble or "no words were found"
            raise CourseError(f"{self.binary}: does not answer as Juman++ v2 does: {trouble}")


def pieces(line: str) -> Iterator[str]:
    """Yield the line cut into pieces that Juman++ can process; joining the pieces restores the line.

    A piece that matches UNFIT must not be sent to Juman++.
    """
    for part in UNFIT.split(line):
        start = 0
        ends = [match.end() for match in RUN.finditer(part)]
        for end in (*ends, len(part)):
            for piece in mecab.cut(part[start:end]):
                # Juman++ treats a line that begins with "# " as a comment.
                is_comment = piece.startswith("# ") and piece != "# "
                yield from ("#", piece[1:]) if is_comment else (piece,)
            start = end

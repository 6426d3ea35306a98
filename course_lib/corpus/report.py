"""Reports on corpus runs: documents and characters read, written and removed (for each reason), with a few examples.

The same input gives the same report. Characters are Unicode code points, not counting line breaks.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from course_lib.files import atomic_write
from course_lib.language.columns import aligned
from course_lib.language.words import tr, tr_noop

# Number of characters of a removed text shown in an example.
EXAMPLE = 80
# Reasons for which lines are removed from documents, in the order in which the lines are examined.
LINES = ("too_long", "invalid_utf8", "duplicate_line")

# Name of the count of characters that a file may not contain.
REPLACED = tr_noop("characters replaced by U+FFFD")


def characters(text: str) -> int:
    """Return the number of code points in a text, not counting line breaks."""
    return len(text) - text.count("\n")


@dataclass
class Removed:
    """The documents (or lines) removed for one reason: how many, their characters, and the first few as examples."""

    count: int = 0  # documents (or lines)
    characters: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)  # {"id", "text", "note"}


@dataclass
class CorpusReport:
    """Counts for a run or for a batch of it; `merge` combines the batches in order.

    For web text, characters_in = characters_out + characters in `removed` and `lines`.
    """

    name: str = ""
    source: str = ""
    documents_in: int = 0
    characters_in: int = 0
    documents_out: int = 0
    characters_out: int = 0
    limits: dict[str, str] = field(default_factory=dict)  # threshold of each possible reason
    removed: dict[str, Removed] = field(default_factory=dict)  # whole documents by reason
    lines: dict[str, Removed] = field(default_factory=dict)  # single lines by reason
    counts: dict[str, int] = field(default_factory=dict)  # everything else
    examples: int = 3  # most examples for each reason

    def enter(self, text: str) -> None:
        """Count one input document."""
        self.documents_in += 1
        self.characters_in += characters(text)

    def keep(self, text: str) -> None:
        """Count one output document."""
        self.documents_out += 1
        self.characters_out += characters(text)

    def remove(self, reason: str, id: str, text: str, note: str = "") -> None:
        """Count one removed document; `note` is a remark for the example, such as the measured value."""
        self._add(self.removed, reason, id, text, note)

    def remove_line(self, reason: str, id: str = "", line: str = "") -> None:
        """Count one line removed from a document; "" if it could not be read as text."""
        self._add(self.lines, reason, id, line, "")

    def count(self, name: str, number: int = 1) -> None:
        """Add `number` to the `name` entry in `counts`; zero creates no entry."""
        if number:
            self.counts[name] = self.counts.get(name, 0) + number

    def merge(self, other: "CorpusReport") -> None:
        """Add to this report the counts from a later batch of the same run."""
        for name in ("documents_in", "characters_in", "documents_out", "characters_out"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.removed, other.removed), (self.lines, other.lines)):
            for reason, later in theirs.items():
                removed = mine.setdefault(reason, Removed())
                removed.count += later.count
                removed.characters += later.characters
                removed.examples = (removed.examples + later.examples)[: self.examples]
        for name, number in other.counts.items():
            self.count(name, number)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, with the reasons in the order of `limits`."""
        plain = asdict(self)
        # The name of a file may have other bytes than UTF-8, as from an archive with Shift_JIS names.
        plain["source"] = self.source.encode("utf8", "replace").decode()
        for name in ("removed", "lines"):
            plain[name] = {reason: plain[name][reason] for reason in self._ordered(plain[name])}
        return plain

    def summary(self) -> str:
        """Return one line with the counts read and kept, and the three reasons that removed the most documents."""
        if not self.documents_in:
            return tr("{name} {source}: no document in the input", name=self.name, source=self.source).lstrip()
        most = sorted(self.removed.items(), key=lambda item: -item[1].count)[:3]
        because = ", ".join(f"{reason} {removed.count:,}" for reason, removed in most if removed.count)
        left = "" if self.documents_out else tr("no document left: ")
        message = tr_noop(
            "{name} {source}: {left}kept {documents_out:,} of {documents_in:,} documents ({documents}), "
            "{characters_out:,} of {characters_in:,} characters ({characters})"
        )
        shares = {
            "documents": _share(self.documents_out, self.documents_in),
            "characters": _share(self.characters_out, self.characters_in),
        }
        line = tr(message, left=left, **shares, **vars(self)).lstrip()
        if because:
            line += tr("; most frequent reasons for removal: {reasons}", reasons=because)
        if replaced := self.counts.get(REPLACED):
            line += tr("; {number:,} characters replaced by U+FFFD", number=replaced)
        return line

    def table(self) -> str:
        """Return the whole report as text in aligned columns."""
        # Label → (limit, number of documents, number of characters).
        counts = {tr("in"): ("", self.documents_in, self.characters_in)}
        for reason in self._ordered(self.limits | self.removed):
            removed = self.removed.get(reason, Removed())
            counts[f"- {reason}"] = (self.limits.get(reason, ""), removed.count, removed.characters)
        counts[tr("out")] = ("", self.documents_out, self.characters_out)
        share = tr("share")
        rows: list[tuple[str, ...]] = [("", "", tr("documents"), share, tr("characters"), share)]
        for label, (limit, number, size) in counts.items():
            shares = _share(number, self.documents_in), _share(size, self.characters_in)
            rows.append((label, tr(limit), f"{number:,}", shares[0], f"{size:,}", shares[1]))
        for reason in self._ordered(self.lines):
            removed = self.lines[reason]
            columns = f"{removed.characters:,}", _share(removed.characters, self.characters_in)
            rows.append((tr("lines: {reason}", reason=reason), "", f"{removed.count:,}", "", *columns))
        rows += [(tr(name), "", f"{number:,}", "", "", "") for name, number in self.counts.items()]
        return "\n".join(aligned(rows, right=range(2, 6)))

    def _add(self, to: dict[str, Removed], reason: str, id: str, text: str, note: str) -> None:
        removed = to.setdefault(reason, Removed())
        removed.count += 1
        removed.characters += characters(text)
        if text and len(removed.examples) < self.examples:
            removed.examples.append({"id": id, "text": text[:EXAMPLE], "note": note})

    def _ordered(self, reasons: dict[str, Any]) -> list[str]:
        # Not by their first occurrence, which is another one if shards of the input are merged.
        known = [reason for reason in (*self.limits, *LINES) if reason in reasons]
        return known + sorted(set(reasons) - set(known))


def report_path(target: Path) -> Path:
    """Return the path of the report next to a product."""
    return target.with_name(f"{target.name}.report.json")


def load_report(target: Path) -> CorpusReport:
    """Read the report that `write_report` wrote next to the `target` file."""
    return from_dict(orjson.loads(report_path(target).read_bytes()))


def from_dict(plain: dict[str, Any]) -> CorpusReport:
    """Return the report that `CorpusReport.to_dict` turned into JSON values."""
    fields = dict(plain)
    for name in ("removed", "lines"):
        fields[name] = {reason: Removed(**values) for reason, values in plain[name].items()}
    return CorpusReport(**fields)


def write_report(report: CorpusReport, target: Path) -> Path:
    """Write the report as JSON to `<target>.report.json` and return that path."""
    return write_report_to(report_path(target), report)


def write_report_to(path: Path, report: CorpusReport) -> Path:
    """Write the report as JSON to a file and return its path."""
    with atomic_write(path) as file:
        file.write(orjson.dumps(report.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return path


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"

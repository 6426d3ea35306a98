"""The later stages of the corpus work: segmentation, tokenizer, tokens, and the merged dataset with its reports."""

from pathlib import Path
from typing import Any

from course_lib.corpus import report as reports
from course_lib.corpus import webtext, wikipedia
from course_lib.corpus.report import CorpusReport
from course_lib.errors import CourseError
from course_lib.japanese.pipeline import segment_file
from course_lib.language.words import tr_noop
from course_lib.pretrain.encode import tokenize
from course_lib.pretrain.indexed import merge
from course_lib.scale.stages import Clean, Documents, Exact, Lines, Near, RepeatedLines, Split, Stage
from course_lib.scale.store import Store
from course_lib.subword.bpe import train_bpe


class Segment(Stage):
    """Segments the clean documents of each shard."""

    name = "segment"
    before = Clean

    def work(self, unit: str, folder: Path) -> None:
        stage = "documents" if self.shard(unit).kind == "wikipedia" else "clean"
        with self.store.reading(f"{stage}/{unit}.jsonl") as (path,):
            # A shard of which no document is left has no text.
            if path.stat().st_size:
                segment_file(path, folder / f"{unit}.txt", self.settings.segment, may_be_empty=True)
            else:
                (folder / f"{unit}.txt").touch()


class _Whole(Stage):
    """A stage of one task that reads all shards."""

    kind = tr_noop("whole")

    def tasks(self) -> int:
        """Return 1."""
        return 1

    def units(self) -> list[str]:
        return ["all"]

    def files(self, stage: str, *suffixes: str) -> list[str]:
        """Return the names of the files of a stage that are not empty, in corpus order."""
        return [name for name, size in self.store.sizes(stage).items() if size and name.endswith(suffixes)]


class Tokenizer(_Whole):
    """Trains the tokenizer on all lines, or on the sample that bpe.input_sentence_size asks for; or copies one."""

    name = "tokenizer"
    before = Segment

    def work(self, unit: str, folder: Path) -> None:
        if self.settings.tokenizer:
            given = Store(self.settings.tokenizer)
            (folder / "tokenizer").mkdir()
            for name in given.sizes(""):
                (folder / "tokenizer" / name).write_bytes(given.read(name))
            return
        with self.store.reading(*self.files("segment", ".txt")) as lines:
            if not lines:
                raise CourseError(f"{self.store.url('segment')}: no text to train a tokenizer on")
            train_bpe(lines, folder / "tokenizer", self.settings.bpe, show_progress=False)


class Tokens(Segment):
    """Tokenizes the lines of each shard."""

    name = "tokens"
    before = Tokenizer

    def work(self, unit: str, folder: Path) -> None:
        tokenizer = self.store.sizes("tokenizer/tokenizer")
        with self.store.reading(f"segment/{unit}.txt") as (path,), self.store.reading(*tokenizer) as files:
            if path.stat().st_size:
                tokenize([path], files[0].parent, folder / unit, append_eod=self.settings.append_eod)


class Merge(_Whole):
    """Merges the token files into one dataset and the reports into one for each kind of input."""

    name = "merged"
    before = Tokens

    def work(self, unit: str, folder: Path) -> dict[str, Any]:
        merged = {kind: self.report(kind) for kind in ("wikipedia", "webtext") if getattr(self.settings, kind)}
        for kind, found in merged.items():
            reports.write_report(found, folder / kind)
        with self.store.reading(*self.files("tokens", ".bin", ".idx")) as files:
            if not files:
                raise CourseError(f"{self.store.url('tokens')}: no tokens: no document of the corpus was kept")
            summary = merge([path for path in files if path.suffix == ".idx"], folder / "tokens")
        return {"documents": summary.documents, "tokens": summary.tokens}

    def report(self, kind: str) -> CorpusReport:
        """Return the corpus report of all shards of a kind, with the numbers of the run of one machine."""
        shards = self.shards(kind)
        source = ", ".join(dict.fromkeys(shard.source for shard in shards))
        if kind == "wikipedia":
            short = {"too_short": f"< {self.settings.extraction.min_chars}"}
            total = CorpusReport("wikipedia", source, limits=wikipedia.LIMITS | short)
        else:
            cleaning = self.settings.cleaning
            total = CorpusReport("webtext", source, limits=webtext.limits(cleaning), examples=cleaning.examples)
        for stage in ("documents", "clean") if kind == "webtext" else ("documents",):
            for shard in shards:
                total.merge(reports.from_dict(self.store.marker(stage, shard.unit)["report"]))
        return total


# In the order of the work.
STAGES: tuple[type[Stage], ...] = (
    Split, Documents, Exact, Near, Lines, RepeatedLines, Clean, Segment, Tokenizer, Tokens, Merge,
)  # fmt: skip

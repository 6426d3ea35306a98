"""Stages of the corpus work as steps of datatrove, which read and write files of shards by the chapters' functions.

A stage has units of work: an input, a shard, or a range of hashes (search.py). A task takes every world_size-th unit.
What a unit yields depends on neither the number of tasks nor the engine, so that the results do not either. This module
has the stages up to clean documents, in the order in which clean_webtext works; text.py has the later ones.
"""

import os
import socket
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from datatrove.pipeline.base import PipelineStep

from course_lib.corpus import webtext
from course_lib.corpus.repeats import Flags, Positions, SignatureReader, near_repeated, repeated
from course_lib.corpus.report import CorpusReport
from course_lib.corpus.wikipedia import extract
from course_lib.errors import CourseError, one_line
from course_lib.language.words import tr_noop
from course_lib.scale import inputs, search
from course_lib.scale.config import ScaleConfig
from course_lib.scale.store import Store

# The bits of a key that hold the position in the shard.
LOW = 0xFFFFFFFF


class Shard(NamedTuple):
    """A shard of the corpus."""

    number: int  # in corpus order
    kind: str  # wikipedia or webtext
    source: str  # name of the input
    file: str
    first: int  # number of web documents in the shards before

    @property
    def unit(self) -> str:
        """The name of the shard in every stage."""
        return f"{self.number:05}"


class Stage(PipelineStep):  # type: ignore[misc]
    """A step without documents as input or output, whose units of work are recorded in the store."""

    type = "course"
    # What a unit is called in `course scale status`.
    kind = tr_noop("shard")
    # The class of the stage that has to be done before this one.
    before: Any = None

    def __init__(self, settings: ScaleConfig) -> None:
        super().__init__()
        self.settings = settings
        self.store = Store(settings.output)

    def tasks(self) -> int:
        """Return the number of tasks."""
        return self.settings.tasks

    def units(self) -> list[str]:
        """Return the names of the units. Raises CourseError if an earlier stage is not done."""
        return [shard.unit for shard in self.shards()]

    def work(self, unit: str, folder: Path) -> dict[str, Any] | None:
        """Write the files of a unit into a folder, and return what else is noted in its marker."""
        raise NotImplementedError

    def shards(self, *kinds: str) -> list[Shard]:
        """Return the shards of the whole corpus, or of some kinds, in corpus order."""
        found: list[Shard] = []
        first = 0
        for unit in Split(self.settings).units():
            note = self.store.marker("split", unit)
            for file, documents in note["shards"]:
                found.append(Shard(len(found), note["kind"], note["source"], file, first))
                first += documents
        return [shard for shard in found if not kinds or shard.kind in kinds]

    def shard(self, unit: str) -> Shard:
        """Return the shard of a unit."""
        return self.shards()[int(unit)]

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Work on each unit of a task that is not done yet, and record the progress for `course scale status`."""
        if self.before:
            missing = sorted({*self.before(self.settings).units()} - {*self.store.done(self.before.name)})
            if missing:
                raise CourseError(f"{self.before.name}: {len(missing)} units are not done, such as {missing[0]}")
        units_of_task = self.units()[rank::world_size]
        done = self.store.done(self.name)
        left = [unit for unit in units_of_task if unit not in done]
        # There as long as the task has work; the status reads it.
        record = f"logs/{self.name}/progress/{rank:05}.json"
        state: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid()}
        self.store.write(record, orjson.dumps(state))
        try:
            for unit in left:
                with self.track_time():
                    self.store.make(self.name, unit, partial(self.work, unit))
            self.store.remove(record)
        except Exception as error:
            # On a full disk, only the engine's log has the reason.
            with suppress(OSError):
                self.store.write(record, orjson.dumps(state | {"error": f"unit {unit}: {one_line(error)}"}))
            raise


class Split(Stage):
    """Gets the inputs and cuts each into shards."""

    name, kind = "split", tr_noop("input")

    def tasks(self) -> int:
        """Return the number of inputs."""
        return len(self.units())

    def units(self) -> list[str]:
        return [f"{number:04}" for number in range(len(self.settings.wikipedia + self.settings.webtext))]

    def work(self, unit: str, folder: Path) -> dict[str, Any]:
        kind = "wikipedia" if int(unit) < len(self.settings.wikipedia) else "webtext"
        source = (self.settings.wikipedia + self.settings.webtext)[int(unit)]
        shards: list[tuple[str, int]] = []
        files: dict[str, int] = {}
        with inputs.fetched(source, self.store, self.settings.download) as path:
            note = {"kind": kind, "source": path.name}
            if kind == "wikipedia":
                cut: Any = ((shard, 0) for shard in inputs.dump_shards(path, self.settings.dump_shard))
            else:
                cut = inputs.text_shards(path, self.settings.text_shard, self.settings.cleaning)
            for content, documents in cut:
                file = f"{unit}-{len(shards):05}{'.xml.bz2' if kind == 'wikipedia' else '.docs'}"
                (folder / file).write_bytes(content)
                files |= self.store.publish(folder, self.name)
                shards.append((f"split/{file}", documents))
        return note | {"shards": shards, "files": files}


class Documents(Stage):
    """Extracts articles; filters web text, and computes what is compared."""

    name = "documents"
    before = Split

    def work(self, unit: str, folder: Path) -> dict[str, Any]:
        shard = self.shard(unit)
        with self.store.reading(shard.file) as (path,):
            if shard.kind == "wikipedia":
                report = extract(path, folder / f"{unit}.jsonl", self.settings.extraction)
            else:
                report = self._filtered(shard, path, folder)
        return {"report": report.to_dict()}

    def _filtered(self, shard: Shard, path: Path, folder: Path) -> CorpusReport:
        cleaning = self.settings.cleaning
        batches = map(partial(webtext.filter_batch, cleaning), inputs.read_documents(path, shard.first + 1))
        return webtext.write_columns(batches, cleaning, lambda name: folder / f"{shard.unit}.{name}")


class _WebShards(Stage):
    """A stage whose units are the shards of web text, with the columns of the documents that passed the filters."""

    def units(self) -> list[str]:
        return [shard.unit for shard in self.shards("webtext")]

    def column(self, unit: str, name: str, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
        """Return a column that the stage `documents` wrote for a shard, [documents or lines, ...]."""
        with self.store.reading(f"documents/{unit}.{name}") as (path,):
            return np.fromfile(path, dtype=dtype)

    def repeats(self, unit: str) -> tuple[Flags, Positions]:
        """Return which documents are exact repeats, and the key of the earliest one that each resembles, or -1."""
        documents = len(self.column(unit, "numbers"))
        exact = np.zeros(documents, dtype=np.bool_)
        exact[search.keys_of(self.store, "exact", int(unit))[0] & LOW] = True
        none = np.iinfo(np.int64).max
        earliest = np.full(documents, none)
        later, earlier = search.keys_of(self.store, "near", int(unit))
        np.minimum.at(earliest, later & LOW, earlier)
        earliest[earliest == none] = -1
        return exact, earliest


class _Search(Stage):
    """A stage whose units are ranges of a column; it finds the keys of values that occur earlier."""

    kind = tr_noop("range")
    # The column, and the stage with the files that say which of its values are searched ("": all).
    column, mask_stage = "", ""

    def units(self) -> list[str]:
        return search.ranges(self.store, self.column)

    def work(self, unit: str, folder: Path) -> None:
        found = np.sort(repeated(*search.read_range(self.store, self.column, unit, self.mask_stage)))
        np.save(folder / f"{unit}.npy", found[np.newaxis])


class Exact(_Search):
    """Finds documents that occur earlier in the corpus."""

    name, column = "exact", "hashes"
    before = Documents


class Near(_Search):
    """Finds documents that nearly duplicate an earlier one, in each range of each band."""

    name = "near"
    before = Exact

    def units(self) -> list[str]:
        if not self.settings.cleaning.dedup.near_duplicates:
            return []
        # Each band has the same number of hashes.
        parts = search.ranges(self.store, "band-0000")
        return [f"{band:04}.{part}" for band in range(self.settings.cleaning.dedup.num_bands) for part in parts]

    def work(self, unit: str, folder: Path) -> None:
        dedup = self.settings.cleaning.dedup
        band, part = unit.split(".")
        values, keys = search.read_range(self.store, f"band-{band}", part)
        later, earlier = near_repeated(values, keys, self._signatures(), dedup.similarity * dedup.num_perm)
        order = np.argsort(later)
        np.save(folder / f"{unit}.npy", np.stack([later[order], earlier[order]]))

    def _signatures(self) -> SignatureReader:
        """Return a function that reads the signatures of documents by their keys."""
        num_perm = self.settings.cleaning.dedup.num_perm

        @cache
        def opened(shard: int) -> npt.NDArray[np.uint8]:
            path = self.store.cached(f"documents/{shard:05}.signatures")
            return np.memmap(path, np.uint8, "r").reshape(-1, num_perm)

        def signatures(keys: Positions) -> npt.NDArray[np.uint8]:
            found = np.empty((len(keys), num_perm), dtype=np.uint8)
            for shard in np.unique(keys >> 32).tolist():
                at = np.flatnonzero(keys >> 32 == shard)
                found[at] = opened(shard)[keys[at] & LOW]
            return found

        return signatures


class Lines(_WebShards):
    """Says which long lines are in documents that stay, so that only these are searched."""

    name = "lines"
    before = Near

    def work(self, unit: str, folder: Path) -> None:
        exact, earliest = self.repeats(unit)
        np.repeat(~exact & (earliest < 0), self.column(unit, "counts")).tofile(folder / f"{unit}.kept")


class RepeatedLines(_Search):
    """Finds long lines that occur earlier in the corpus."""

    name, column, mask_stage = "repeated-lines", "lines", "lines"
    before = Lines


class Clean(_WebShards):
    """Removes repeats from web text."""

    name = "clean"
    before = RepeatedLines

    def work(self, unit: str, folder: Path) -> dict[str, Any]:
        cleaning = self.settings.cleaning
        exact, earliest = self.repeats(unit)
        reasons = np.full(len(exact), webtext.UNIQUE)
        for shard in np.unique(earliest[earliest >= 0] >> 32).tolist():
            near = np.flatnonzero(earliest >> 32 == shard)
            reasons[near] = self.column(f"{shard:05}", "numbers")[earliest[near] & LOW]
        reasons[exact] = webtext.DUPLICATE
        counts = self.column(unit, "counts")
        lines = np.zeros(counts.sum(), dtype=np.bool_)
        lines[search.keys_of(self.store, "repeated-lines", int(unit))[0] & LOW] = True
        report = CorpusReport(examples=cleaning.examples)
        with self.store.reading(f"documents/{unit}.documents") as (path,), open(folder / f"{unit}.jsonl", "wb") as out:
            for batch in webtext.read_filtered(path, reasons, counts, lines):
                part, written = webtext.remove_repeats(cleaning, batch)
                report.merge(part)
                out.write(written)
        return {"report": report.to_dict()}

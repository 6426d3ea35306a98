"""Estimate of hours, memory and disk space of a run for 1 to 512 cores, from rates measured on one machine.

rates.yaml holds the measurements of tests/bench/bench_scale.py: for each kind of input and each stage the seconds and
the bytes on disk per byte of input, and the memory of a task. Splitting a dump costs 22 times as much if it is no
multistream dump, because its pages are compressed again. Three stages use one core: one task splits an input, one
trains the tokenizer, and one merges the tokens. The others use at most one core per shard. Network and disks are
assumed to keep up.
"""

from pathlib import Path
from typing import Any, NamedTuple

from course_lib.corpus.dump import is_multistream
from course_lib.files import OPENERS, human_size, require_file
from course_lib.language.columns import aligned
from course_lib.language.words import tr
from course_lib.scale.config import ScaleConfig
from course_lib.scale.inputs import check_source
from course_lib.settings import profiles

RATES = Path(__file__).with_name("rates.yaml")
CORES = (1, 8, 64, 512)
# Bytes of the whole corpora: the compressed dump of jawiki, and the text of CC-100.
SIZES = {"jawiki": 4_500_000_000, "cc100": 75_000_000_000}
SERIAL = ("split", "tokenizer", "merged")
# Bytes of text by which the compression of a file is estimated.
SAMPLE = 16 << 20


class Estimate(NamedTuple):
    """What a corpus takes on some number of cores."""

    hours: float
    lowest: float  # hours, if every stage runs at the highest rate measured
    highest: float
    serial: float  # hours of `hours` during which only one core works
    memory: int  # of the largest task [bytes]
    disk: int  # [bytes]


def estimate(
    settings: ScaleConfig,
    kind: str,
    size: int,
    cores: int,
    multistream: bool = True,
    rates: dict[str, Any] | None = None,
) -> Estimate:
    """Return the estimate for a corpus of a kind (wikipedia or webtext).

    `size` is that of the compressed dump, or of the uncompressed text [bytes]. `rates` replace the measurements
    in rates.yaml.
    """
    measured = dict((rates or profiles.read_yaml(RATES))[kind])
    recompressed = measured.pop("split-recompressed", None)
    if recompressed and not multistream:
        measured["split"] = recompressed
    if settings.tokenizer:
        measured.pop("tokenizer", None)
    shards = max(1, size // (settings.dump_shard if kind == "wikipedia" else settings.text_shard))

    def hours(key: str) -> float:
        workers = {stage: 1 if stage in SERIAL else min(cores, shards) for stage in measured}
        return sum(float(one[key]) * size / workers[stage] / 3600 for stage, one in measured.items())

    serial = sum(one["seconds"] * size / 3600 for stage, one in measured.items() if stage in SERIAL)
    memory = max(int(one["memory"]) for one in measured.values())
    disk = int(sum(one["disk"] for one in measured.values()) * size)
    return Estimate(hours("seconds"), hours("fastest"), hours("slowest"), serial, memory, disk)


def plan(settings: ScaleConfig) -> tuple[list[tuple[str, int, Estimate]], list[str]]:
    """Return (inputs, cores, estimate) for each kind, by default jawiki and CC-100, and the inputs of unknown size."""
    chosen = {"wikipedia": settings.wikipedia, "webtext": settings.webtext}
    found, unknown = [], []
    for kind, sources in (chosen if any(chosen.values()) else {"wikipedia": ["jawiki"], "webtext": ["cc100"]}).items():
        for source in sources:
            check_source(source, kind)
        sizes = {source: _size(source, kind) for source in sources}
        dumps = [Path(source) for source in sources if source.startswith("/")] if kind == "wikipedia" else []
        unknown += [source for source, size in sizes.items() if size is None]
        total, label = sum(size or 0 for size in sizes.values()), sources[0].rpartition("/")[2] if sources else ""
        if len(sources) > 1:
            label = tr("{name} and {number} more", name=label, number=len(sources) - 1)
        for cores in CORES if total else ():
            one = estimate(settings, kind, total, cores, all(map(is_multistream, dumps)))
            found.append((label, cores, one))
    return found, unknown


def table(settings: ScaleConfig) -> str:
    """Return the estimates for the inputs as text in aligned columns."""
    rows = [(tr("corpus"), tr("cores"), tr("hours"), tr("from-to"), tr("of them on one core"), tr("memory a task"),
             tr("disk"))]  # fmt: skip
    found, unknown = plan(settings)
    for name, cores, one in found:
        spread = f"{one.lowest:.1f}-{one.highest:.1f}"
        memory, disk = human_size(one.memory), human_size(one.disk)
        rows.append((name, str(cores), f"{one.hours:.1f}", spread, f"{one.serial:.1f}", memory, disk))
    if settings.tokenizer:
        notes = [tr("with the tokenizer {folder}", folder=settings.tokenizer)]
    elif number := settings.bpe.input_sentence_size:
        notes = [tr("as if the tokenizer read all lines; the sample of {number:,} takes less", number=number)]
    else:
        notes = [tr("with a tokenizer trained on all lines; bpe.input_sentence_size shortens that stage")]
    notes += [tr("not counted, because its size is unknown: {source}", source=source) for source in unknown]
    return "\n".join([*aligned(rows), *notes])


def _size(source: str, kind: str) -> int | None:
    """Return the size of an input as the rates count it [bytes]; None if it is unknown, as for an address."""
    name = source.partition(":")[0]
    if name in SIZES or "://" in source:
        return SIZES.get(name)
    path = require_file(Path(source))
    if kind == "wikipedia" or path.suffix not in OPENERS:
        return path.stat().st_size
    with open(path, "rb") as file:
        reader = OPENERS[path.suffix](file)
        return len(reader.read(SAMPLE)) * path.stat().st_size // file.tell()

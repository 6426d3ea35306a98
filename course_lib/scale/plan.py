"""Estimate of hours, memory and disk space of a run for 1 to 512 cores, from rates measured on one machine.

rates.yaml holds the measurements of tests/bench/bench_scale.py: for each kind of input and each stage the seconds and
the bytes on disk per byte of input, and the memory of a task. Dumps are taken for multistream dumps; another one costs
22 times as much to split, because its pages are compressed again. Stages of one task use one core, the others at most
one core per shard. Network and disks are assumed to keep up.
"""

from pathlib import Path
from typing import Any, NamedTuple

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
    serial: float  # hours of `hours` during which only one core works
    memory: int  # of the largest task [bytes]
    disk: int  # [bytes]


def estimate(
    settings: ScaleConfig,
    kind: str,
    size: int,
    cores: int,
    rates: dict[str, Any] | None = None,
) -> Estimate:
    """Return the estimate for a corpus of a kind (wikipedia or webtext).

    `size` is that of the compressed dump, or of the uncompressed text [bytes]. `rates` replace the measurements
    in rates.yaml.
    """
    measured = dict((rates or profiles.read_yaml(RATES))[kind])
    if settings.tokenizer:
        measured.pop("tokenizer", None)
    hours = {stage: float(one["seconds"]) * size / 3600 for stage, one in measured.items()}
    serial = sum(hours[stage] for stage in SERIAL if stage in hours)
    shards = max(1, size // (settings.dump_shard if kind == "wikipedia" else settings.text_shard))
    total = serial + (sum(hours.values()) - serial) / min(cores, shards)
    memory = max(int(one["memory"]) for one in measured.values())
    return Estimate(total, serial, memory, int(sum(one["disk"] for one in measured.values()) * size))


def plan(settings: ScaleConfig) -> tuple[list[tuple[str, int, Estimate]], list[str]]:
    """Return (inputs, cores, estimate) for each kind, by default jawiki and CC-100, and the inputs of unknown size."""
    chosen = {"wikipedia": settings.wikipedia, "webtext": settings.webtext}
    if not any(chosen.values()):
        chosen = {"wikipedia": ("jawiki",), "webtext": ("cc100",)}
    rows: list[tuple[str, int, Estimate]] = []
    unknown: list[str] = []
    for kind, sources in chosen.items():
        for source in sources:
            check_source(source, kind)
        sizes = {source: _size(source, kind) for source in sources}
        unknown += [source for source, size in sizes.items() if size is None]
        known = {source: size for source, size in sizes.items() if size}
        label, total = ", ".join(Path(source).name for source in known), sum(known.values())
        rows += [(label, cores, estimate(settings, kind, total, cores)) for cores in CORES if known]
    return rows, unknown


def table(settings: ScaleConfig) -> str:
    """Return the estimates for the inputs as text in aligned columns."""
    rows = [(tr("corpus"), tr("cores"), tr("hours"), tr("of them on one core"), tr("memory a task"), tr("disk"))]
    found, unknown = plan(settings)
    for name, cores, one in found:
        memory, disk = human_size(one.memory), human_size(one.disk)
        rows.append((name, str(cores), f"{one.hours:.1f}", f"{one.serial:.1f}", memory, disk))
    note = tr("with a tokenizer trained on all lines; bpe.input_sentence_size shortens that stage")
    if settings.tokenizer:
        note = tr("with the tokenizer {folder}", folder=settings.tokenizer)
    missing = [tr("not counted, because its size is unknown: {source}", source=source) for source in unknown]
    return "\n".join([*aligned(rows), note, *missing])


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

"""Estimate of hours, memory and disk space of a run for 1 to 512 cores, from rates measured on one machine.

rates.yaml holds the measurements of tests/bench/bench_scale.py: for each kind of input and each stage the seconds and
the bytes on disk per byte of input, and the memory of a task. Three stages use one core: one task splits an input, one
trains the tokenizer on all lines, and one merges the tokens. The others use at most one core per shard. Network and
disks are assumed to keep up.
"""

from pathlib import Path
from typing import Any, NamedTuple

from course_lib.files import human_size
from course_lib.language.messages import aligned
from course_lib.language.words import tr
from course_lib.scale.config import ScaleConfig
from course_lib.settings import profiles

RATES = Path(__file__).with_name("rates.yaml")
CORES = (1, 8, 64, 512)
# Bytes of the whole corpora: the compressed dump of jawiki, and the text of CC-100.
SIZES = {"jawiki": ("wikipedia", 4_500_000_000), "CC-100": ("webtext", 75_000_000_000)}
SERIAL = ("split", "tokenizer", "merged")


class Estimate(NamedTuple):
    """What a corpus takes on some number of cores."""

    hours: float
    lowest: float  # hours, if every stage runs at the highest rate measured
    highest: float
    serial: float  # hours of `hours` during which only one core works
    memory: int  # of the largest task [bytes]
    disk: int  # [bytes]


def estimate(settings: ScaleConfig, kind: str, size: int, cores: int, rates: dict[str, Any] | None = None) -> Estimate:
    """Return the estimate for a corpus.

    Args:
        settings: settings of the run, of which the sizes of the shards count.
        kind: wikipedia or webtext.
        size: size of the corpus: the compressed dump, or the uncompressed text [bytes].
        cores: number of cores.
        rates: measurements; None means those in rates.yaml.
    """
    measured = (rates or profiles.read_yaml(RATES))[kind]
    shards = max(1, size // (settings.dump_shard if kind == "wikipedia" else settings.text_shard))
    hours = [0.0, 0.0, 0.0]
    serial = 0.0
    for stage, one in measured.items():
        workers = 1 if stage in SERIAL else min(cores, shards)
        for place, key in enumerate(("seconds", "fastest", "slowest")):
            hours[place] += one[key] * size / workers / 3600
        serial += one["seconds"] * size / 3600 if stage in SERIAL else 0.0
    memory = max(int(one["memory"]) for one in measured.values())
    disk = int(sum(one["disk"] for one in measured.values()) * size)
    return Estimate(hours[0], hours[1], hours[2], serial, memory, disk)


def table(settings: ScaleConfig) -> str:
    """Return the estimates for Japanese Wikipedia and CC-100 as text in aligned columns."""
    rows = [
        (
            tr("corpus"), tr("cores"), tr("hours"), tr("from-to"), tr("of them on one core"), tr("memory a task"),
            tr("disk"),
        )
    ]  # fmt: skip
    for name, (kind, size) in SIZES.items():
        for cores in CORES:
            one = estimate(settings, kind, size, cores)
            spread = f"{one.lowest:.1f}-{one.highest:.1f}"
            memory, disk = human_size(one.memory), human_size(one.disk)
            rows.append((name, str(cores), f"{one.hours:.1f}", spread, f"{one.serial:.1f}", memory, disk))
    note = tr("with a tokenizer trained on all lines; bpe.input_sentence_size shortens that stage")
    return "\n".join([*aligned(rows), note])

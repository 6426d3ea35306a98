"""Table for chapter 1: how MinHash banding finds candidate pairs of similar documents."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

from course_lib.errors import UsageError
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.plot import BLUE, GREEN, ORANGE, PLAIN, PURPLE, RED, Color
from course_lib.notebooks.table import Table, cell

# Colors of the buckets that several documents share, in the order of the buckets of a band.
SHARED = (BLUE, ORANGE, GREEN, RED, PURPLE)
# The buckets of a band: the names of the documents by their values in the band.
Buckets = dict[tuple[int, ...], list[str]]


def banding(signatures: Mapping[str, Sequence[int]], bands: int) -> Table:
    """Show signatures cut into bands, the buckets of each band, and the candidate pairs.

    Two documents are candidates if all values in at least one band are equal; only candidates are compared, as in
    repeats.py. Source: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4 (http://www.mmds.org).

    Args:
        signatures: MinHash values by a short document name; all have the same length.
        bands: number of bands.
    """
    lengths = sorted({len(values) for values in signatures.values()})
    if len(lengths) != 1 or bands < 1 or lengths[0] % bands:
        raise UsageError(f"bands: {bands} is not allowed: it must divide the length of each signature, {lengths}")
    size = lengths[0] // bands
    buckets: list[Buckets] = [defaultdict(list) for _ in range(bands)]
    for name, values in signatures.items():
        for band, members in zip(_bands(values, size), buckets, strict=True):
            members[band].append(name)

    # An empty cell before each band keeps the bands apart.
    rows = [[cell()]]
    for number in range(1, bands + 1):
        rows[0] += [cell(), cell(tr("band {number}", number=number), columns=size)]
    for name, values in signatures.items():
        row = [cell(name, align="right")]
        for band, members in zip(_bands(values, size), buckets, strict=True):
            shared = len(members[band]) > 1
            row += [cell(), *(cell(str(value), color=_color(members, band), bold=shared) for value in band)]
        rows.append(row)
    rows.append([cell(tr("buckets"), align="right"), *[cell(), cell("↓", columns=size)] * bands])
    for level in range(max(map(len, buckets))):
        row = [cell()]
        for members in buckets:
            row.append(cell())
            if level < len(members):
                band, names = list(members.items())[level]
                text = ", ".join(names)
                row.append(cell(text, columns=size, color=_color(members, band), bold=len(names) > 1))
            else:
                row.append(cell(columns=size))
        rows.append(row)

    pairs = sorted({pair for members in buckets for names in members.values() for pair in combinations(names, 2)})
    message = tr_noop("{one}–{two}: {equal} of {values} values equal")
    facts = []
    for one, two in pairs:
        equal = sum(a == b for a, b in zip(signatures[one], signatures[two], strict=True))
        facts.append(tr(message, one=one, two=two, equal=equal, values=lengths[0]))
    found = tr("candidate pairs: {pairs}", pairs="; ".join(facts) or tr("none"))
    message = tr_noop(
        "Each of {documents} documents has a signature of {values} values. In each band, documents with equal "
        "values share a bucket, drawn in one color. Found {found}."
    )
    description = tr(message, documents=len(signatures), values=lengths[0], found=found)
    return Table(tr("MinHash signatures in {bands} bands of {size}", bands=bands, size=size), rows, description)


def _bands(values: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Return a signature cut into bands."""
    return [tuple(values[start : start + size]) for start in range(0, len(values), size)]


def _color(members: Buckets, band: tuple[int, ...]) -> Color:
    """Return the color of a bucket: one of SHARED if it has several documents."""
    number = list(members).index(band)
    return SHARED[number % len(SHARED)] if len(members[band]) > 1 else PLAIN

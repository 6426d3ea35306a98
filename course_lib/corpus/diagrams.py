"""Drawing for chapter 1: how MinHash banding finds candidate pairs of similar documents."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

from course_lib.errors import UsageError
from course_lib.language.words import mark, tr
from course_lib.notebooks.canvas import HUES, MUTED, PLAIN, SMALL, Canvas, text_width
from course_lib.notebooks.drawing import Drawing

# Smallest width of a cell, and space between two bands [pixels].
CELL, GAP = 34, 16


def banding(signatures: Mapping[str, Sequence[int]], bands: int) -> Drawing:
    """Draw signatures cut into bands, the buckets of each band, and the candidate pairs.

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
    shown = {name: [str(value) for value in values] for name, values in signatures.items()}
    cell = max(CELL, *(int(text_width(value, SMALL)) + 12 for values in shown.values() for value in values))
    left = 40 + max(text_width(name) for name in signatures)
    step = size * cell + GAP
    # For each band, the names of the documents by their values in it.
    buckets: list[dict[tuple[int, ...], list[str]]] = [defaultdict(list) for _ in range(bands)]
    for name, values in signatures.items():
        for band, members in enumerate(buckets):
            members[tuple(values[band * size : (band + 1) * size])].append(name)
    deepest = max(map(len, buckets))
    top, line = 82, 32
    below = top + line * len(signatures) + 40
    canvas = Canvas(max(480, int(left + bands * step + 8)), int(below + line * deepest + 60))
    canvas.text(16, below - 14, tr("buckets"), color=MUTED, anchor="start")
    for row, name in enumerate(signatures):
        canvas.text(left - 14, top + line * row + 13, name, anchor="end")
    for band, members in enumerate(buckets):
        x = left + band * step
        canvas.text(x + size * cell / 2, top - 18, tr("band {number}", number=band + 1), SMALL, MUTED)
        for number, names in enumerate(members.values()):
            color = HUES[number % len(HUES)] if len(names) > 1 else PLAIN
            canvas.box(x, below + line * number, size * cell, 26, ", ".join(names), color=color, size=SMALL)
            for name in names:
                y = top + line * list(signatures).index(name)
                for column, value in enumerate(shown[name][band * size : (band + 1) * size]):
                    canvas.box(x + column * cell, y, cell, 26, value, color=color, size=SMALL)
        canvas.arrow((x + size * cell / 2, below - 34), (x + size * cell / 2, below - 4))
    pairs = sorted({pair for members in buckets for names in members.values() for pair in combinations(names, 2)})
    message = mark("{one}–{two}: {equal} of {values} values equal")
    facts = []
    for one, two in pairs:
        equal = sum(a == b for a, b in zip(signatures[one], signatures[two], strict=True))
        facts.append(tr(message, one=one, two=two, equal=equal, values=lengths[0]))
    found = tr("candidate pairs: {pairs}", pairs="; ".join(facts) or tr("none"))
    canvas.text(16, canvas.height - 20, found, anchor="start")
    message = mark(
        "Each of {documents} documents has a signature of {values} values. In each band, documents with equal "
        "values share a bucket, drawn in one color. Found {found}."
    )
    description = tr(message, documents=len(signatures), values=lengths[0], found=found)
    return canvas.finish(tr("MinHash signatures in {bands} bands of {size}", bands=bands, size=size), description)

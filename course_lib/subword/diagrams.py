"""Drawing for chapter 3: BPE's merges of a word above Unigram's lattice of its pieces."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.notebooks import canvas
from course_lib.notebooks.drawing import Drawing
from course_lib.subword.folder import WORD

# Width of a character's column, left margin, and distance between two levels of the merge tree [pixels].
COLUMN, LEFT, LEVEL = 72, 96, 54
# The longest word that fits, and the number of segmentations listed.
LONGEST, LISTED = 9, 3


class Merged(NamedTuple):
    """A node of the merge tree: a span of characters, and the number and the parts of the merge that built it."""

    start: int
    end: int
    rank: int | None = None
    parts: "tuple[Merged, ...]" = ()
    # Number of merges on the longest path down to a character.
    depth: int = 0


def merge_tree(word: str, merges: Sequence[tuple[str, str]]) -> list[Merged]:
    """Return the tokens of a word under BPE as merge trees: the earliest-learned possible merge is applied first."""
    ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(merges)))}
    nodes = [Merged(at, at + 1) for at in range(len(word))]
    while True:
        texts = [word[node.start : node.end] for node in nodes]
        possible = [(ranks[pair], at) for at, pair in enumerate(pairwise(texts)) if pair in ranks]
        if not possible:
            return nodes
        rank, at = min(possible)
        left, right = nodes[at], nodes[at + 1]
        nodes[at : at + 2] = [Merged(left.start, right.end, rank, (left, right), 1 + max(left.depth, right.depth))]


def segmentations(text: str, scores: Mapping[str, float]) -> list[tuple[float, tuple[str, ...]]]:
    """Return all segmentations of a text into pieces, best first, with their sums of log probabilities [nats]."""
    found: list[list[tuple[float, tuple[str, ...]]]] = [[(0.0, ())]]
    for end in range(1, len(text) + 1):
        pieces = ((start, text[start:end]) for start in range(end))
        known = ((start, piece) for start, piece in pieces if piece in scores)
        found.append([(s + scores[piece], (*path, piece)) for start, piece in known for s, path in found[start]])
    return sorted(found[-1], key=lambda each: (-each[0], each[1]))


def merges_and_lattice(word: str, merges: Sequence[tuple[str, str]], scores: Mapping[str, float]) -> Drawing:
    """Draw how BPE and Unigram split the same word: the merge tree above it, the lattice of pieces below it.

    `merges` are BPE's, in the order in which they were learned. `scores` are the log probabilities of Unigram's pieces
    [nats]; Unigram writes the space before a word as ▁. Sources: Sennrich, Haddow and Birch 2016
    (https://aclanthology.org/P16-1162/), Kudo 2018 (https://aclanthology.org/P18-1007/).
    """
    text = WORD + word
    ranked = segmentations(text, scores) if 0 < len(word) <= LONGEST else []
    if not ranked:
        raise UsageError(f"word: {word!r} is not allowed: 1 to {LONGEST} characters, covered by the pieces in scores")
    tokens = merge_tree(word, merges)
    chosen = ranked[0][1]
    ends = list(accumulate(map(len, chosen)))
    best = list(zip([0, *ends], ends, strict=False))
    spans = [(start, end) for end in range(1, len(text) + 1) for start in range(end) if text[start:end] in scores]
    # Pieces of the best segmentation come first, so that they share the first row.
    spans.sort(key=lambda span: (span not in best, span))
    rows = canvas.rows_without_overlap(spans)
    middle = 54 + LEVEL * max(1, *(node.depth for node in tokens))
    lattice = middle + 56
    bottom = lattice + 48 * (max(rows) + 1) + 26
    card = canvas.Canvas(max(LEFT + COLUMN * len(text) + 20, 640), bottom + 24 * min(LISTED, len(ranked)) + 22)
    card.text(LEFT - 14, middle - LEVEL, "BPE", color=canvas.MUTED, anchor="end", bold=True)
    card.text(LEFT - 14, lattice + 20, "Unigram", color=canvas.MUTED, anchor="end", bold=True)
    # BPE sees no ▁, so its column is empty in the upper half.
    for at, character in enumerate(word, len(WORD)):
        card.box(LEFT + COLUMN * at, middle, COLUMN - 4, 28, character, color=canvas.GREY, bold=True)
    for node in tokens:
        _tree(card, word, node, middle, True)
    for (start, end), row in zip(spans, rows, strict=True):
        piece, width = text[start:end], COLUMN * (end - start) - 4
        color = canvas.ORANGE if (start, end) in best else canvas.PLAIN
        shown = canvas.with_minus(f"{scores[piece]:.2f}")
        card.box(LEFT + COLUMN * start, lattice + 48 * row, width, 42, piece, shown, color=color)
    head = tr("Unigram's segmentations, sum of log probabilities")
    card.text(16, bottom, head, canvas.SMALL, canvas.MUTED, "start")
    for number, (score, path) in enumerate(ranked[:LISTED], start=1):
        line = f"{number}.  {' | '.join(path)}   {canvas.with_minus(f'{score:.2f}')}"
        shade = canvas.MUTED if number > 1 else canvas.ORANGE.line
        card.text(16, bottom + 24 * number, line, color=shade, anchor="start")
    return card.finish(
        tr("{word}: BPE merges, Unigram chooses", word=word),
        tr(
            "BPE builds {tokens} from characters, the earliest learned merge first. Unigram compares "
            "{number} segmentations by the sum of log probabilities and chooses {best}.",
            tokens=" | ".join(word[node.start : node.end] for node in tokens),
            number=len(ranked),
            best=" | ".join(chosen),
        ),
    )


def _tree(card: canvas.Canvas, word: str, node: Merged, base: float, token: bool) -> canvas.Box:
    """Draw a merge tree above the characters at `base`, with a whole `token` in color; return the box of its root."""
    middle = LEFT + COLUMN * (1 + (node.start + node.end) / 2) - 2
    if not node.parts and not token:
        return canvas.Box(middle - 20, base, 40, 28)
    text = word[node.start : node.end]
    detail = tr("no merge") if node.rank is None else tr("merge {number:,}", number=node.rank + 1)
    width = max(canvas.text_width(text), canvas.text_width(detail, canvas.SMALL)) + 8
    color = canvas.BLUE if token else canvas.PLAIN
    box = card.box(middle - width / 2, base - LEVEL * max(node.depth, 1), width, 40, text, detail, color=color)
    for part in node.parts or (Merged(node.start, node.end),):
        card.line(box.bottom, _tree(card, word, part, base, False).top)
    return box

"""Drawing for chapter 3: BPE's merges of a word above Unigram's lattice of its pieces."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.notebooks.canvas import (
    BLUE,
    GREY,
    MUTED,
    ORANGE,
    PLAIN,
    SMALL,
    TEXT,
    Box,
    Canvas,
    rows_without_overlap,
    text_width,
    with_minus,
)  # fmt: skip
from course_lib.notebooks.drawing import Drawing
from course_lib.subword.folder import WORD

# Width of a character's column, left margin [pixels], and the longest word that fits.
COLUMN, LEFT, LONGEST = 72, 96, 9
# Vertical distance between two levels of the merge tree [pixels].
LEVEL = 54
# Number of segmentations listed.
LISTED = 3


class Merged(NamedTuple):
    """A node of the merge tree: the span of characters, and the merge that built it (None for a character)."""

    start: int
    end: int
    rank: int | None
    parts: "tuple[Merged, ...]"

    @property
    def depth(self) -> int:
        """Number of merges on the longest path down to a character."""
        return 1 + max(part.depth for part in self.parts) if self.parts else 0


def merge_tree(word: str, merges: Sequence[tuple[str, str]]) -> list[Merged]:
    """Return the tokens of a word under BPE as merge trees: the earliest-learned possible merge is applied first."""
    ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(merges)))}
    nodes = [Merged(at, at + 1, None, ()) for at in range(len(word))]
    while True:
        texts = [word[node.start : node.end] for node in nodes]
        possible = [(ranks[pair], at) for at, pair in enumerate(pairwise(texts)) if pair in ranks]
        if not possible:
            return nodes
        rank, at = min(possible)
        left, right = nodes[at], nodes[at + 1]
        nodes[at : at + 2] = [Merged(left.start, right.end, rank, (left, right))]


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

    Sources: Sennrich, Haddow and Birch 2016 (https://aclanthology.org/P16-1162/), Kudo 2018
    (https://aclanthology.org/P18-1007/).

    Args:
        word: a word without spaces.
        merges: BPE's merges in the order in which they were learned: `model.merges` in tokenizer.json.
        scores: the log probability of each Unigram piece [nats]: `model.vocab` in tokenizer.json. Unigram writes the
            space before a word as ▁.

    Raises:
        UsageError: if the word is empty or too long to draw, or the pieces do not cover it.
    """
    text = WORD + word
    ranked = segmentations(text, scores) if 0 < len(word) <= LONGEST else []
    if not ranked:
        raise UsageError(f"word: {word!r} is not allowed: 1 to {LONGEST} characters, covered by the pieces in scores")
    tokens = merge_tree(word, merges)
    middle = 54 + LEVEL * max(1, *(node.depth for node in tokens))
    spans = [(start, end) for end in range(1, len(text) + 1) for start in range(end) if text[start:end] in scores]
    best = _spans(ranked[0][1])
    # Pieces of the best segmentation come first, so that they share the first row.
    spans.sort(key=lambda span: (span not in best, span))
    rows = rows_without_overlap(spans)
    lattice = middle + 56
    bottom = lattice + 48 * (max(rows) + 1) + 26
    canvas = Canvas(max(LEFT + COLUMN * len(text) + 20, 640), bottom + 24 * min(LISTED, len(ranked)) + 22)
    canvas.text(LEFT - 14, middle - LEVEL, "BPE", color=MUTED, anchor="end", bold=True)
    canvas.text(LEFT - 14, lattice + 20, "Unigram", color=MUTED, anchor="end", bold=True)
    for at, character in enumerate(text):
        canvas.box(LEFT + COLUMN * at, middle, COLUMN - 4, 28, character, color=GREY, bold=True)
    for node in tokens:
        _tree(canvas, word, node, middle, True)
    for (start, end), row in zip(spans, rows, strict=True):
        piece, width = text[start:end], COLUMN * (end - start) - 4
        color = ORANGE if (start, end) in best else PLAIN
        shown = with_minus(f"{scores[piece]:.2f}")
        canvas.box(LEFT + COLUMN * start, lattice + 48 * row, width, 42, piece, shown, color=color)
    canvas.text(16, bottom, tr("Unigram's segmentations, sum of log probabilities"), SMALL, MUTED, "start")
    for number, (score, path) in enumerate(ranked[:LISTED]):
        line = f"{number + 1}.  {' | '.join(path)}   {with_minus(f'{score:.2f}')}"
        canvas.text(16, bottom + 24 * (number + 1), line, color=ORANGE.line if not number else MUTED, anchor="start")
    tokens_text = " | ".join(word[node.start : node.end] for node in tokens)
    return canvas.finish(
        tr("{word}: BPE merges, Unigram chooses", word=word),
        tr(
            "BPE builds {tokens} from characters, the earliest learned merge first. Unigram compares "
            "{number} segmentations by the sum of log probabilities and chooses {best}.",
            tokens=tokens_text,
            number=len(ranked),
            best=" | ".join(ranked[0][1]),
        ),
    )


def _spans(pieces: Sequence[str]) -> set[tuple[int, int]]:
    """Return the spans of consecutive pieces."""
    ends = [sum(map(len, pieces[: number + 1])) for number in range(len(pieces))]
    return {(end - len(piece), end) for end, piece in zip(ends, pieces, strict=True)}


def _tree(canvas: Canvas, word: str, node: Merged, base: float, token: bool) -> Box:
    """Draw a merge tree above the characters, whose upper edge is `base`. Return the box of its root.

    `token` is true for the root of a whole tree, which is drawn in color.
    """
    middle = LEFT + COLUMN * (1 + (node.start + node.end) / 2) - 2
    if not node.parts and not token:
        return Box(middle - 20, base, 40, 28)
    text = word[node.start : node.end]
    detail = (tr("merge {number:,}", number=node.rank + 1),) if node.rank is not None else (tr("no merge"),)
    width = max(text_width(text, TEXT), text_width(detail[0], SMALL)) + 8
    y = base - LEVEL * max(node.depth, 1)
    box = canvas.box(middle - width / 2, y, width, 40, text, *detail, color=BLUE if token else PLAIN)
    for part in node.parts or (Merged(node.start, node.end, None, ()),):
        below = _tree(canvas, word, part, base, False)
        canvas.line(box.bottom, below.top)
    return box

"""Table for chapter 3: BPE's merges of a word above Unigram's lattice of its pieces."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.notebooks.plot import BLUE, GREY, ORANGE, PLAIN, rows_without_overlap
from course_lib.notebooks.table import Table, cell
from course_lib.subword.folder import WORD

# The longest word that fits, and the number of segmentations listed.
LONGEST, LISTED = 9, 3
# The first column of a cell, the column behind it, and the cell.
Tile = tuple[int, int, str]


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
    # For each position, the segmentations of the text before it.
    found: list[list[tuple[float, tuple[str, ...]]]] = [[(0.0, ())]]
    for end in range(1, len(text) + 1):
        ending: list[tuple[float, tuple[str, ...]]] = []
        for start in range(end):
            piece = text[start:end]
            if piece in scores:
                ending += [(score + scores[piece], (*path, piece)) for score, path in found[start]]
        found.append(ending)
    return sorted(found[-1], key=lambda each: (-each[0], each[1]))


def merges_and_lattice(word: str, merges: Sequence[tuple[str, str]], scores: Mapping[str, float]) -> Table:
    """Show how BPE and Unigram split the same word: the merge tree above it, the lattice of pieces below it.

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
    rows = [*_merge_rows(word, tokens), _character_row(word), *_piece_rows(text, chosen, scores)]
    rows.append(
        [cell(), cell(tr("Unigram's segmentations, sum of log probabilities"), columns=len(text), align="left")]
    )
    for number, (score, path) in enumerate(ranked[:LISTED], start=1):
        pieces = cell(" | ".join(path), columns=len(text), align="left", bold=number == 1)
        rows.append([cell(f"{number}.", align="right"), pieces, cell(_with_minus(score), align="right")])
    description = tr(
        "BPE builds {tokens} from characters, the earliest learned merge first. Unigram compares "
        "{number} segmentations by the sum of log probabilities and chooses {best}.",
        tokens=" | ".join(word[node.start : node.end] for node in tokens),
        number=len(ranked),
        best=" | ".join(chosen),
    )
    return Table(tr("{word}: BPE merges, Unigram chooses", word=word), rows, description)


def _merge_rows(word: str, tokens: Sequence[Merged]) -> list[list[str]]:
    """Return the rows of the merge tree, the last merge first; whole tokens are in color."""
    # A node without a merge is shown if it is a token. All others are the characters below the tree.
    by_level: dict[int, list[Tile]] = defaultdict(list)
    waiting = list(tokens)
    while waiting:
        node = waiting.pop()
        waiting += node.parts
        is_token = node in tokens
        if node.parts or is_token:
            detail = tr("no merge") if node.rank is None else tr("merge {number:,}", number=node.rank + 1)
            shown = cell(
                word[node.start : node.end], detail, columns=node.end - node.start,
                color=BLUE if is_token else PLAIN, bold=is_token,
            )  # fmt: skip
            by_level[max(node.depth, 1)].append((node.start + len(WORD), node.end + len(WORD), shown))
    levels = sorted(by_level, reverse=True)
    return [_row("BPE" if level == levels[0] else "", by_level[level]) for level in levels]


def _character_row(word: str) -> list[str]:
    """Return the row of characters. BPE sees no ▁, so its column is empty."""
    characters = enumerate(word, start=len(WORD))
    return _row("", [(at, at + 1, cell(character, color=GREY, bold=True)) for at, character in characters])


def _piece_rows(text: str, chosen: Sequence[str], scores: Mapping[str, float]) -> list[list[str]]:
    """Return the rows of all pieces in a text; those of the chosen segmentation are in color, in the first row."""
    ends = list(accumulate(map(len, chosen)))
    best = list(zip([0, *ends], ends, strict=False))
    spans = [(start, end) for end in range(1, len(text) + 1) for start in range(end) if text[start:end] in scores]
    spans.sort(key=lambda span: (span not in best, span))
    rows: dict[int, list[Tile]] = defaultdict(list)
    for (start, end), row in zip(spans, rows_without_overlap(spans), strict=True):
        piece, is_best = text[start:end], (start, end) in best
        color = ORANGE if is_best else PLAIN
        shown = cell(piece, _with_minus(scores[piece]), columns=end - start, color=color, bold=is_best)
        rows[row].append((start, end, shown))
    return [_row("" if row else "Unigram", rows[row]) for row in sorted(rows)]


def _row(label: str, tiles: Sequence[Tile]) -> list[str]:
    """Return a row of the table: a label, then cells at their columns with gaps between them."""
    cells, filled = [cell(label, align="right", bold=True)], 0
    for start, end, shown in sorted(tiles):
        if start > filled:
            cells.append(cell(columns=start - filled))
        cells.append(shown)
        filled = end
    return cells


def _with_minus(score: float) -> str:
    """Return a sum of log probabilities with two decimals and a minus sign instead of a hyphen."""
    return f"{score:.2f}".replace("-", "−")

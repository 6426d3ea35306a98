"""Drawing for chapter 2: MeCab's lattice, with the costs of words and connections, and two paths through it."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from course_lib.japanese.lattice import Word, candidates, cheapest_paths, connection, path_through, path_to
from course_lib.language.words import tr, tr_noop
from course_lib.notebooks.drawing import Drawing
from course_lib.notebooks.plot import CARD, GREEN, GREY, INK, MUTED, ORANGE, PLAIN, Color, rows_without_overlap

# Width of a character and of the gap behind it, height of a tile, and distance of two rows [pixels].
CHARACTER, GAP, TILE, ROW = 50, 78, 76, 96
# Left margin, top of the first row, and the smallest width of the drawing, in which the legend fits [pixels].
LEFT, TOP, NARROWEST = 16, 44, 640
# Sizes of text, and distance of two lines in a tile [pixels].
TEXT, SMALL, LINE = 14, 12, 17
# The lines of connections off the cheapest path to a word.
LIGHT = "#c3cad2"
# Position of a connection's cost on its line: at 0.6, the costs of neighboring lines are apart.
AT = 0.6
# Latin and Japanese fonts in the order in which a viewer's machine may have them.
FONTS = "Arial, 'Liberation Sans', 'Noto Sans JP', 'Noto Sans CJK JP', 'Hiragino Sans', 'Yu Gothic', Meiryo, sans-serif"
# A word's text, part of speech and start.
Key = tuple[str, str, int]


class Box(NamedTuple):
    """Where a word is drawn [pixels]."""

    left: int
    top: int
    width: int
    height: int = TILE

    @property
    def right(self) -> int:
        """The right side."""
        return self.left + self.width

    @property
    def middle(self) -> int:
        """The height at which lines begin and end."""
        return self.top + self.height // 2


def lattice(sentence: str, other: Sequence[str] = ()) -> Drawing:
    """Draw a sentence's candidate words with the costs of their connections, the cheapest path and another path.

    A tile spans the characters of its word and shows the part of speech, the word's cost, and the cost of the cheapest
    path to its end. A dark line, with the cost of its connection, leads to a word from the word before it on that path;
    the other connections are light lines without a cost. Of several entries with the same
    text, position and part of speech, the cheapest one is drawn.
    Source: Kudo, Yamamoto and Matsumoto 2004 (https://aclanthology.org/W04-3230/).

    Args:
        sentence: a sentence without spaces.
        other: the words of a second path through it, which become green.
    """
    words = candidates(sentence)
    best = cheapest_paths(words)
    nodes: dict[Key, Word] = {}
    for word in sorted(best, key=lambda word: best[word][0]):
        nodes.setdefault(_key(word), word)
    paths = [path_to(words[-1], best), path_through(other) if other else []]
    on_path = [{_key(word) for word in path} for path in paths]
    boxes = _boxes(list(nodes.values()), on_path, len(sentence))

    tiles = []
    for key, word in nodes.items():
        color = ORANGE if key in on_path[0] else GREEN if key in on_path[1] else PLAIN
        if word.text:
            tiles.append(_tile(boxes[key], color, [_number(word.cost), _number(best[word][0])], word))
        else:
            tiles.append(_tile(boxes[key], GREY, [tr("end") if word.end > len(sentence) else tr("start")]))

    legend = tr(
        "in a tile: part of speech, cost of the word, cost of the cheapest path to its end; on a line: connection"
    )
    below = max(box.top for box in boxes.values()) + ROW + 8
    shown = [_text(LEFT, below, legend, SMALL, MUTED, anchor="start")]
    facts = []
    for name, color, path in ((tr("cheapest path"), ORANGE, paths[0]), (tr("other path"), GREEN, paths[1])):
        if path:
            line = _sums(name, path)
            y = below + 24 * len(shown)
            shown.append(_text(LEFT, y, line, TEXT, color.line, bold=True, anchor="start"))
            facts.append(f"{line} ({' '.join(f'{word.text} {word.cost:,}' for word in path[1:-1])}).")
    message = tr_noop("{number} candidate words with their costs, each below the characters that it spans. {paths}")
    description = tr(message, number=len(nodes) - 2, paths=" ".join(facts))

    title = tr("MeCab's lattice")
    width = max(NARROWEST, max(box.right for box in boxes.values()) + LEFT)
    height = below + 24 * len(shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="{FONTS}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(description)}</desc>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{CARD}" stroke="#cbd2d9" />',
        *_connections(nodes, best, paths, boxes),
        *tiles,
        *shown,
        _text(LEFT, 20, title, 16, bold=True, anchor="start"),
        "</svg>",
    ]
    return Drawing("\n".join(parts))


def _boxes(nodes: Sequence[Word], on_path: Sequence[set[Key]], length: int) -> dict[Key, Box]:
    """Return where each word is drawn.

    The cheapest path is in the first row and the other one in the last, where its tiles hide no line.

    Args:
        nodes: the words.
        on_path: the words of the cheapest path, and those of the other one.
        length: length of the sentence [characters].
    """
    tiles = sorted((word for word in nodes if word.text), key=lambda word: (word.start, word.end))
    last = [word for word in tiles if _key(word) in on_path[1] - on_path[0]]
    above = sorted((word for word in tiles if word not in last), key=lambda word: _key(word) not in on_path[0])
    rows = rows_without_overlap((word.start, word.end) for word in above)
    last_row = max(rows, default=0) + 1
    step = CHARACTER + GAP
    boxes: dict[Key, Box] = {}
    for word, row in zip([*above, *last], [*rows, *[last_row] * len(last)], strict=True):
        left, width = LEFT + step * (1 + word.start), step * (word.end - word.start) - GAP
        boxes[_key(word)] = Box(left, TOP + ROW * row, width)
    # The start and the end of the sentence are before the first character and behind the last one.
    for word in nodes:
        if not word.text:
            column = 1 + length if word.end > length else 0
            boxes[_key(word)] = Box(LEFT + step * column, TOP + TILE // 2 - 18, CHARACTER, 36)
    return boxes


def _connections(
    nodes: Mapping[Key, Word], best: Mapping[Word, tuple[int, Word | None]], paths: Sequence[Sequence[Word]],
    boxes: Mapping[Key, Box],
) -> list[str]:  # fmt: skip
    """Return SVG lines between neighboring words, then the costs of those on `paths` or a cheapest path to a word."""
    first, second = ({(_key(one), _key(two)) for one, two in pairwise(path)} for path in paths)
    edges = [(one, two) for two in nodes.values() for one in nodes.values() if one.end == two.start and one != two]
    edges.sort(key=lambda edge: (_key(edge[0]), _key(edge[1])) in first | second)
    lines, costs = [], []
    for one, two in edges:
        pair, before = (_key(one), _key(two)), best[two][1]
        is_cheapest = before is not None and _key(before) == _key(one)
        is_on_path = pair in first or pair in second
        color = ORANGE.line if pair in first else GREEN.line if is_on_path else MUTED if is_cheapest else LIGHT
        width = 2.5 if is_on_path else 1.3
        start, end = boxes[pair[0]], boxes[pair[1]]
        track = f"M{start.right},{start.middle} L{end.left},{end.middle}"
        lines.append(f'<path d="{track}" stroke="{color}" stroke-width="{width}" />')
        # The costs of all lines would stand on each other.
        if is_on_path or is_cheapest:
            x = start.right * (1 - AT) + end.left * AT
            y = start.middle * (1 - AT) + end.middle * AT
            cost = _number(connection(one, two))
            shown = _text(x, y, cost, SMALL, color if is_on_path else MUTED, bold=is_on_path)
            # A wide white outline keeps the number apart from the lines.
            costs.append(f'<g stroke="{CARD}" stroke-width="5" paint-order="stroke">{shown}</g>')
    return lines + costs


def _tile(box: Box, color: Color, lines: Sequence[str], word: Word | None = None) -> str:
    """Return a box with lines of small text, below the text and the part of speech of a word."""
    position = f'x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}"'
    shown = [f'<rect {position} rx="4" fill="{color.fill}" stroke="{color.line}" />']
    texts = [word.text, word.part_of_speech, *lines] if word else lines
    for number, text in enumerate(texts):
        x, y = box.left + box.width / 2, box.middle + LINE * (number - (len(texts) - 1) / 2)
        is_name = word is not None and number == 0
        shown.append(_text(x, y, text, TEXT if is_name else SMALL, bold=is_name))
    return "\n".join(shown)


def _sums(name: str, path: Sequence[Word]) -> str:
    """Return a line with the sums of the costs of a path: of its words, of its connections, and of both."""
    of_words = sum(word.cost for word in path)
    of_connections = sum(connection(one, two) for one, two in pairwise(path))
    return tr(
        "{name}: words {words}, connections {links}, together {total}",
        name=name,
        words=_number(of_words),
        links=_number(of_connections),
        total=_number(of_words + of_connections),
    )


def _text(
    x: float, y: float, text: str, size: int, color: str = INK, bold: bool = False, anchor: str = "middle"
) -> str:
    """Return a line of text whose vertical middle is at `y`; `anchor` is start, middle or end."""
    weight = ' font-weight="bold"' if bold else ""
    # 0.35 of the size lies between the base line and the middle of a letter.
    position = f'x="{x:g}" y="{y + 0.35 * size:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {position} fill="{color}"{weight}>{escape(text)}</text>'


def _number(cost: int) -> str:
    """Return a cost with a minus sign instead of a hyphen."""
    return f"{cost:,}".replace("-", "−")


def _key(word: Word) -> Key:
    return word.text, word.part_of_speech, word.start

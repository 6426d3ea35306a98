"""Drawing for chapter 2: MeCab's lattice, with the costs of words and connections, and two paths through it."""

from collections.abc import Sequence
from itertools import pairwise

from course_lib.japanese.lattice import Word, candidates, cheapest, connection, through, way
from course_lib.language.words import mark, tr
from course_lib.notebooks import canvas
from course_lib.notebooks.drawing import Drawing

# Width of a character and of the gap behind it, height of a tile, distance of two rows, left margin [pixels].
CHARACTER, GAP, TILE, ROW, LEFT = 50, 78, 76, 96, 16
# The lines of connections off the cheapest way to a word.
LIGHT = "#c3cad2"
# Position of a connection's cost on its line: at 0.6, the costs of neighboring lines are apart.
AT = 0.6


def lattice(sentence: str, other: Sequence[str] = ()) -> Drawing:
    """Draw a sentence's candidate words with the costs of their connections, the cheapest path and another path.

    A tile spans the characters of its word and shows the part of speech, the word's cost, and the cost of the cheapest
    path to its end. A dark line leads to a word from the word before it on that path. Of several entries with the same
    text, position and part of speech, the cheapest one is drawn.
    Source: Kudo, Yamamoto and Matsumoto 2004 (https://aclanthology.org/W04-3230/).

    Args:
        sentence: a sentence without spaces.
        other: the words of a second path through it, which become green.
    """
    words = candidates(sentence)
    best = cheapest(words)
    nodes: dict[tuple[str, str, int], Word] = {}
    for word in sorted(best, key=lambda word: best[word][0]):
        nodes.setdefault((word.text, word.part_of_speech, word.start), word)
    paths = [way(best, words[-1]), through(other) if other else []]
    first, second = (dict.fromkeys(pairwise(map(_key, each))) for each in paths)
    on = [{_key(word) for word in each} for each in paths]
    # The cheapest path is in the first row and the other one in the last, where its tiles hide no line.
    tiles = sorted((word for word in nodes.values() if word.text), key=lambda word: (word.start, word.end))
    above = sorted(
        (word for word in tiles if _key(word) not in on[1] - on[0]), key=lambda word: _key(word) not in on[0]
    )
    free = canvas.rows_without_overlap((word.start, word.end) for word in above)
    rows = dict.fromkeys(map(_key, tiles), max(free) + 1) | dict(zip(map(_key, above), free, strict=True))
    origin, step = LEFT + CHARACTER + GAP, CHARACTER + GAP
    below = 52 + ROW * (max(rows.values()) + 1)
    card = canvas.Canvas(origin + step * len(sentence) + CHARACTER + LEFT, below + 24 * (1 + sum(map(bool, paths))))
    middle = 44 + TILE / 2
    boxes = {
        _key(words[0]): canvas.Box(LEFT, middle - 18, CHARACTER, 36),
        _key(words[-1]): canvas.Box(origin + step * len(sentence), middle - 18, CHARACTER, 36),
    }
    for word in tiles:
        width = step * (word.end - word.start) - GAP
        boxes[_key(word)] = canvas.Box(origin + step * word.start, 44 + ROW * rows[_key(word)], width, TILE)
    edges = [(one, two) for two in nodes.values() for one in nodes.values() if one.end == two.start and one != two]
    labels = []
    for one, two in sorted(edges, key=lambda edge: (*map(_key, edge),) in first or (*map(_key, edge),) in second):
        pair, before = (_key(one), _key(two)), best[two][1]
        kept = before is not None and _key(before) == _key(one)
        color = (canvas.ORANGE if pair in first else canvas.GREEN).line if pair in first or pair in second else ""
        start, end = boxes[pair[0]].right, boxes[pair[1]].left
        card.line(start, end, color=color or (canvas.MUTED if kept else LIGHT), width=2.5 if color else 1.3)
        at = (start[0] * (1 - AT) + end[0] * AT, start[1] * (1 - AT) + end[1] * AT)
        labels.append((*at, canvas.with_minus(f"{connection(one, two):,}"), color or canvas.MUTED, bool(color)))
    for label in labels:
        card.label(*label)
    for word in (words[0], words[-1]):
        card.box(*boxes[_key(word)], tr("end") if word.end > len(sentence) else tr("start"), color=canvas.GREY, size=12)
    for word in tiles:
        numbers = canvas.with_minus(f"{word.cost:,}"), canvas.with_minus(f"{best[word][0]:,}")
        fill = canvas.ORANGE if _key(word) in on[0] else canvas.GREEN if _key(word) in on[1] else canvas.PLAIN
        card.box(*boxes[_key(word)], word.text, word.part_of_speech, *numbers, color=fill, bold=True)
    legend = tr(
        "in a tile: part of speech, cost of the word, cost of the cheapest path to its end; on a line: connection"
    )
    card.text(LEFT, below, legend, canvas.SMALL, canvas.MUTED, "start")
    facts = []
    names = (tr("cheapest path"), canvas.ORANGE), (tr("other path"), canvas.GREEN)
    for number, ((name, hue), each) in enumerate(zip(names, filter(None, paths), strict=False), start=1):
        costs, links = sum(word.cost for word in each), sum(connection(*pair) for pair in pairwise(each))
        shown = [canvas.with_minus(f"{value:,}") for value in (costs, links, costs + links)]
        message = mark("{name}: words {words}, connections {links}, together {total}")
        line = tr(message, name=name, words=shown[0], links=shown[1], total=shown[2])
        card.text(LEFT, below + 24 * number, line, color=hue.line, anchor="start", bold=True)
        facts.append(f"{line} ({' '.join(f'{word.text} {word.cost:,}' for word in each[1:-1])}).")
    message = mark("{number} candidate words with their costs, each below the characters that it spans. {paths}")
    return card.finish(tr("MeCab's lattice"), tr(message, number=len(tiles), paths=" ".join(facts)))


def _key(word: Word) -> tuple[str, str, int]:
    return word.text, word.part_of_speech, word.start

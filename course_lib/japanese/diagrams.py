"""Drawing for chapter 2: MeCab's lattice, the candidate words of a sentence with their costs and the cheapest path."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from course_lib.japanese import mecab
from course_lib.japanese.lattice import Step
from course_lib.language.words import mark, tr
from course_lib.notebooks import canvas
from course_lib.notebooks.drawing import Drawing

# Width of a character's column, height of a tile, and left margin [pixels].
COLUMN, TILE, LEFT = 66, 76, 20
# Words in a line of the cheapest path.
PER_LINE = 6
# Output format of MeCab: all candidates. The end of the sentence gets a byte offset beyond any sentence.
CANDIDATES = r"-a -F %m,%f[0],%ps,%c,%pc,%pb\\n -U %m,%f[0],%ps,%c,%pc,%pb\\n -E ,EOS,99999999,0,%pc,*\\n"


class Node(NamedTuple):
    """A candidate word in a lattice. Costs are MeCab's, without a unit; lower is better."""

    surface: str
    part: str  # part of speech; "EOS" for the end of the sentence
    start: int  # position of the first character
    cost: int  # cost of the word itself
    total: int  # cost of the cheapest path from the beginning of the sentence to the end of this word
    best: bool  # whether the word is on the cheapest path


def mecab_lattice(sentence: str) -> list[Node]:
    """Return the candidate words that MeCab considers for a sentence, and the end of the sentence as the last node.

    Of several entries with the same text, position and part of speech, the one with the cheapest path is kept. The
    output format is described at https://taku910.github.io/mecab/format.html.
    """
    nodes: dict[tuple[str, str, int], Node] = {}
    for line in mecab.tagger(CANDIDATES).parse(sentence).splitlines():
        surface, part, offset, cost, total, best = line.rsplit(",", 5)
        start = len(sentence.encode()[: int(offset)].decode())
        node = Node(surface, part, start, int(cost), int(total), best == "*")
        held = nodes.setdefault((surface, part, start), node)
        if (not node.best, node.total) < (not held.best, held.total):
            nodes[surface, part, start] = node
    return list(nodes.values())


def lattice(nodes: Sequence[Node], other: Sequence[Step] = ()) -> Drawing:
    """Draw a lattice above the cheapest path with its costs, and below it another path.

    A tile spans the characters of its word and shows the part of speech, the word's cost, and the cost of the cheapest
    path to its end. On the path, the number at an arrow is the connection cost: total − previous total − word cost.
    Source: Kudo, Yamamoto and Matsumoto 2004 (https://aclanthology.org/W04-3230/).

    Args:
        nodes: the candidates, as `mecab_lattice` returns them; the last one is the end of the sentence.
        other: a second path through the same sentence, as `lattice.path` returns it; its words are green.
    """
    *words, end = nodes
    starts = accumulate((len(step.word) for step in other), initial=0)
    # Like the first four fields of a node, which identify it.
    second = {(step.word, step.part_of_speech, start, step.cost) for step, start in zip(other, starts, strict=False)}
    # Words of each path come together, so that they share a row.
    words = sorted(words, key=lambda node: (not node.best, node[:4] not in second, node.start, len(node.surface)))
    rows = canvas.rows_without_overlap((node.start, node.start + len(node.surface)) for node in words)
    path = [*(node for node in words if node.best), end]
    steps = [
        Step(node.surface, node.part, node.cost, node.total - before - node.cost, node.total)
        for node, before in zip(path, [0, *(node.total for node in path)], strict=False)
    ]
    below = 78 + (max(rows) + 1) * (TILE + 6)
    paths = [(tr("cheapest path"), steps, canvas.ORANGE), (tr("other path"), other, canvas.GREEN)][: 2 if other else 1]
    heights = [48 + 72 * -(-len(each) // PER_LINE) for _, each, _ in paths]
    card = canvas.Canvas(max(2 * LEFT + COLUMN * end.start, 860), below + 34 + sum(heights))
    for position, character in enumerate("".join(node.surface for node in path)):
        card.text(LEFT + COLUMN * (position + 0.5), 56, character, 16, bold=True)
    for node, row in zip(words, rows, strict=True):
        x, span = LEFT + COLUMN * node.start, COLUMN * len(node.surface) - 4
        numbers = canvas.with_minus(f"{node.cost:,}"), canvas.with_minus(f"{node.total:,}")
        color = canvas.ORANGE if node.best else canvas.GREEN if node[:4] in second else canvas.PLAIN
        card.box(x, 74 + row * (TILE + 6), span, TILE, node.surface, node.part, *numbers, color=color, bold=True)
    legend = tr("in a tile: part of speech, cost of the word, cost of the cheapest path to its end")
    card.text(16, below + 8, legend, canvas.SMALL, canvas.MUTED, "start")
    y = below + 34
    facts = []
    for (name, each, color), height in zip(paths, heights, strict=True):
        total = canvas.with_minus(f"{each[-1].total:,}")
        card.text(16, y, tr("{name}, with the cost of each connection", name=name), canvas.SMALL, color.line, "start")
        card.box(16, y + 28, 54, 40, tr("start"), "0", color=canvas.GREY, size=canvas.SMALL)
        for number, step in enumerate(each):
            line, column = divmod(number, PER_LINE)
            x, top = 132 + 122 * column, y + 28 + 72 * line
            word, fill = (step.word, color) if step.word else (tr("end"), canvas.GREY)
            box = card.box(x, top, 60, 40, word, canvas.with_minus(f"{step.cost:,}"), color=fill)
            card.arrow((x - 62, box.left[1]), box.left)
            card.text(x - 31, top - 10, canvas.with_minus(f"{step.connection:+,}"), canvas.SMALL, canvas.BLUE.line)
        card.text(16, y + height - 28, tr("sum of all costs: {total}", total=total), anchor="start")
        costs = ", ".join(f"{step.word} {step.part_of_speech} {step.cost:,}" for step in each[:-1])
        message = mark("The {name} is {costs}; with the costs of the connections, its total is {total}.")
        facts.append(tr(message, name=name, costs=costs, total=total))
        y += height
    message = mark("{number} candidate words with their costs, each below the characters that it spans. {paths}")
    return card.finish(tr("MeCab's lattice"), tr(message, number=len(words), paths=" ".join(facts)))

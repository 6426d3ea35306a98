"""Right and wrong answers to the exercises of chapter 5."""

from typing import Any

from course_lib.exercises import gptsan

from tests.exercises.answers.forms import LIST, in_forms


def scan(text: str, ids: dict[str, int], choose: Any = None, longest: int = 3, step: int | None = None) -> list[int]:
    """The scan of the smallest id with another choice, with shorter pieces, or with a constant step."""
    found, place = [], 0
    while place < len(text):
        pieces = [text[place : place + n] for n in range(1, longest + 1) if text[place : place + n] in ids]
        best = (choose or (lambda of: min(of, key=ids.__getitem__)))(pieces) if pieces else text[place]
        found.append(ids.get(best, -1))
        place += step or len(best)
    return found


def best_first(text: str, ids: dict[str, int]) -> list[int]:
    """Cuts at the smallest id wherever it stands, then left and right of it."""
    for piece in sorted(ids, key=ids.__getitem__):
        left, found, right = text.partition(piece)
        if found:
            return [*best_first(left, ids), ids[piece], *best_first(right, ids)]
    return [-1] * len(text)


def room(choices: list[int], experts: int, factor: float, least: int = 4, cut: Any = int) -> list[bool]:
    """Capacity with another minimum or another rounding."""
    return [choices[:i].count(e) < max(least, cut(len(choices) * factor / experts)) for i, e in enumerate(choices)]


def mask(tokens: int, prefix: int, spout: bool, own: int = 1, slot: int = 1) -> list[list[int]]:
    """The mask with or without the token itself, with or without a slot for the spout; the prefix counted in tokens."""
    first = slot * spout
    return [[int(j < first + i + own or j < first + prefix) for j in range(first + tokens)] for i in range(tokens)]


def in_slots(tokens: int, prefix: int, spout: bool) -> list[list[int]]:
    return mask(tokens, max(0, prefix - spout), spout)


RIGHT: dict[int, list[Any]] = {
    1: in_forms(scan, LIST),
    2: [*in_forms(room, LIST), lambda c, e, f: [int(kept) for kept in room(c, e, f)]],
    3: [*in_forms(in_slots, LIST), lambda n, p, s: [[cell == 1 for cell in row] for row in in_slots(n, p, s)]],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda t, ids: scan(t, ids, lambda pieces: max(pieces, key=len)), "not the longest piece"),
        (lambda t, ids: [ids.get(c, -1) for c in t], "single characters"),
        (lambda t, ids: scan(t, ids, longest=2), "ている has 3 characters"),
        (lambda t, ids: scan(t, ids, step=1), "after the piece that it took, here"),
        (best_first, "from left to right"),
        (lambda t, ids: [i for i in gptsan.encode(t, ids) if i >= 0], "no entry begins with 犬"),
    ],
    2: [
        (lambda c, e, f: [True] * len(c), "but 6 chose expert 0"),
        (lambda c, e, f: room(c[::-1], e, f)[::-1], "the first come are served"),
        (lambda c, e, f: room(c, e, 1.0), "times the factor"),
        (lambda c, e, f: [i < int(len(c) * f / e) for i in range(len(c))], "counts its own tokens"),
        (lambda c, e, f: room(c, e, f, cut=round), "int(5.625)"),
        (lambda c, e, f: room(c, e, f, least=1), "no capacity is below 4"),
    ],
    3: [
        (lambda n, p, s: mask(n, p, s, own=0), "a token sees itself"),
        (lambda n, p, s: [list(row) for row in zip(*mask(n, p, s), strict=True)], "exchanged"),
        (lambda n, p, s: [[1] * (n + s)] * n, "must not see the tokens after it"),
        (lambda n, p, s: mask(n, 0, s), "every token sees them"),
        (lambda n, p, s: mask(n, p, s, slot=0), "a column, but no row"),
        (lambda n, p, s: mask(n + s, p, False), "a column, but no row"),
        (mask, "counted in slots"),
        ([[1]], "expected a function"),
    ],
}

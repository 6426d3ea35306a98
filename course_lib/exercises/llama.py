"""Exercises for the optional part of chapter 4, from GPT-2 to Llama: rotary positions, grouped queries, tiles.

The checks compare with transformers. An answer that equals a usual mistake gets that mistake's advice.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Exercise, from_notebook
from course_lib.exercises.answers import judge_tensors
from course_lib.exercises.tiles import check_tiled
from course_lib.language.words import tr_noop
from course_lib.pretrain.by_hand import attend

NOTEBOOK = "04_gpt2_to_llama"


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Exercise 4a+.1: rope
def _check_rope(rope: Any) -> str | None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    peer = LlamaRotaryEmbedding(LlamaConfig(hidden_size=8, num_attention_heads=1))

    def right(x: Tensor, start: int = 0) -> Tensor:
        turned, _ = apply_rotary_pos_emb(x, x, *peer(x, torch.arange(start, start + 5)[None]))
        return torch.as_tensor(turned)

    def angles(start: int, size: int = 8) -> Tensor:
        return torch.arange(start, start + 5)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2) / size)

    def turned(pairs: Sequence[Tensor], angles: Tensor) -> Tensor:
        u, v = pairs
        return torch.cat([u * angles.cos() - v * angles.sin(), v * angles.cos() + u * angles.sin()], -1)

    def neighbors(x: Tensor, start: int = 0) -> Tensor:
        return turned((x[..., ::2], x[..., 1::2]), angles(start))

    mistakes = (
        (lambda x, start=0: turned(x.chunk(2, -1), angles(0)), tr_noop("the first row has the position `start`")),
        (lambda x, start=0: turned(x.chunk(2, -1), -angles(start)),
         tr_noop("the sign: (u, v) becomes (u cos a − v sin a, v cos a + u sin a)")),
        (lambda x, start=0: turned(x.chunk(2, -1), angles(start, 16)),
         tr_noop("the exponent is −i / (number of points): half the size")),
        (neighbors, tr_noop("point i is made of numbers i and i + size / 2, not of two neighbors")),
        (lambda x, start=0: torch.stack(neighbors(x, start).chunk(2, -1), -1).flatten(-2),
         tr_noop("point i is made of numbers i and i + size / 2, and its numbers stay in these places")),
    )  # fmt: skip
    x = _numbers(2, 1, 5, 8)
    cases = [((x,), right), ((x, 3), right)]
    return judge_tensors(
        lambda x, start=0: rope(x, start=start) if start else rope(x), cases, mistakes, tr_noop("transformers' Llama")
    )


# Exercise 4a+.2: grouped
def _check_grouped(grouped: Any) -> str | None:
    from transformers.models.llama.modeling_llama import repeat_kv

    def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        times = q.shape[1] // k.shape[1]
        return attend(q, *(torch.as_tensor(repeat_kv(each, times)) for each in (k, v)))

    def in_turn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        times = q.shape[1] // k.shape[1]
        return attend(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1))

    def unmasked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (torch.as_tensor(repeat_kv(each, q.shape[1] // k.shape[1])) for each in (k, v))
        shares: Tensor = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return shares @ v

    mistakes = (
        (in_turn, tr_noop("the first queries share the first keys: each head of keys stands several times in a row, as "
                          "repeat_interleave makes it, not repeat")),
        (lambda q, k, v: attend(q, k[:, :1], v[:, :1]), tr_noop("each group has a head of keys and values of its own")),
        (lambda q, k, v: attend(q[:, :: q.shape[1] // k.shape[1]], k, v),
         tr_noop("all heads of queries read; the heads of keys and values are repeated for them")),
        (unmasked, tr_noop("tokens read from later ones: use `attend`")),
    )  # fmt: skip
    calls = []
    for heads, stored in ((4, 2), (6, 2), (6, 3)):
        q, (k, v) = _numbers(2, heads, 5, 4), (_numbers(2, stored, 5, 4, seed=seed) for seed in (1, 2))
        calls.append(((q, k, v), right))
    return judge_tensors(grouped, calls, mistakes, "transformers' Llama")


CHAPTER = Chapter(
    Exercise(
        "write rope(x, theta=10000.0, start=0): each point of queries or keys, turned by its position and its speed",
        _check_rope,
        (
            "speeds = theta ** (-torch.arange(0, size, 2) / size); the angles are [seq, size / 2].",
            "x.chunk(2, dim=-1) gives u and v of all points; torch.cat puts the turned halves side by side.",
        ),
        from_notebook(NOTEBOOK, "rope_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write grouped(q, k, v): attention whose queries have more heads than its keys and values",
        _check_grouped,
        (
            "q.shape[1] // k.shape[1] queries share a head of keys and values.",
            "k.repeat_interleave(times, dim=1) gives each query its keys; then `attend`.",
        ),
        from_notebook(NOTEBOOK, "grouped_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write tiled(q, k, v, tile): attention that never holds more than one tile of scores",
        check_tiled,
        (
            "A loop over k[..., first : first + tile, :], and the same of v. Keep three things for each query: the "
            "largest score, the sum of e^(score − largest), and the sum of the values with these weights.",
            "With the new largest score, multiply both sums by e^(old − new) before you add the tile's.",
            "The mask of a tile: its keys' positions are greater than torch.arange(seq)[:, None].",
        ),
        from_notebook(NOTEBOOK, "tiled_ours"),
        SEE_FOLDED_CELL,
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

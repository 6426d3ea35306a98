"""Other right answers, and wrong ones, to the exercises of notebook 4a+. The wrong ones are often edits of its folded cells."""

from typing import Any

import torch
from course_lib.pretrain.by_hand import attend
from torch.nn import functional

from tests.exercises.answers.folded import Folded

FOLDED = Folded("04_gpt2_to_llama", torch=torch, attend=attend)
COURSE, changed = FOLDED.names, FOLDED.changed
NAMES = {**COURSE}
RIGHT: dict[int, list[Any]] = {
    2: [lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (changed("rope_ours", ("torch.arange(start, start + seq)", "torch.arange(seq)")), "has the position `start`"),
        (changed("rope_ours", ("one * angles.cos() - two", "one * angles.cos() + two"),
                 ("two * angles.cos() + one", "two * angles.cos() - one")), "the sign"),
        (changed("rope_ours", ("torch.arange(0, size, 2) / size", "torch.arange(size // 2) / size")), "half the size"),
        (changed("rope_ours", ("x.chunk(2, dim=-1)", "x[..., ::2], x[..., 1::2]")), "not of two neighbors"),
    ],
    2: [
        (lambda q, k, v: attend(q, k.repeat(1, q.shape[1] // k.shape[1], 1, 1), v.repeat(1, q.shape[1] // k.shape[1], 1, 1)),
         "repeat_interleave makes it"),
        (lambda q, k, v: attend(q, k[:, :1], v[:, :1]), "of its own"),
        (lambda q, k, v: attend(q[:, :: q.shape[1] // k.shape[1]], k, v), "all heads of queries read"),
        (changed("grouped_ours", ("attend(q, k, v)", "(q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v")), "later ones"),
        (attend, "cannot be judged"),
    ],
    3: [
        (attend, "The task: write tiled"),
        (lambda q, k, v, tile: attend(q, k, v), "one tile of scores"),
        (changed("tiled_ours", ("total * shrunk", "total")), "both sums so far shrink"),
        (changed("tiled_ours", (".masked_fill(future, -torch.inf)", "")), "no token reads from later ones"),
        (changed("tiled_ours", ("scores - risen", "scores"), ("largest - risen", "largest * 0")), "not finite"),
        (changed("tiled_ours", ("range(0, seq, tile)", "range(0, seq - tile + 1, tile)")), "with 5 tokens in tiles"),
        (changed("tiled_ours", ("return read / total", "return total")), "expected a tensor of the shape"),
    ],
}  # fmt: skip

"""Exercises for chapter 4: a Megatron index file, memory with ZeRO, and the learning-rate schedule."""

import struct
from itertools import accumulate
from math import cos, pi
from typing import Any

from course_lib.exercises import Case, Chapter, Exercise, run_cases


def read_index(content: bytes) -> tuple[int, list[int], list[int]]:
    """Return the dtype code, the sequence sizes [tokens] and the document index from a Megatron .idx file."""
    import struct

    _, _, code, sequences, entries = struct.unpack_from("<9sQBQQ", content)
    sizes = struct.unpack_from(f"<{sequences}i", content, 34)
    documents = struct.unpack_from(f"<{entries}q", content, 34 + 12 * sequences)
    return code, list(sizes), list(documents)


class _Index(bytes):
    """The bytes of a small .idx file for the check. Its repr shows the documents."""

    documents: list[list[int]]  # for each document, its sequence sizes [tokens]

    def __new__(cls, code: int, width: int, documents: list[list[int]]) -> "_Index":
        sizes = [size for document in documents for size in document]
        ends = list(accumulate((width * size for size in sizes), initial=0))
        starts = list(accumulate(map(len, documents), initial=0))
        layout = f"<9sQBQQ{len(sizes)}i{len(sizes)}q{len(starts)}q"
        header = b"MMIDIDX\0\0", 1, code, len(sizes), len(starts)
        index = super().__new__(cls, struct.pack(layout, *header, *sizes, *ends[:-1], *starts))
        index.documents = documents
        return index

    def __repr__(self) -> str:
        return f"an index with documents of {self.documents} tokens"


def _check_index(answer: Any) -> str | None:
    header = (
        "this file has no sequences: the header of 34 bytes is followed only by the last entry of the document index, 0"
    )
    body = "first come 4 bytes of size for each sequence, then 8 bytes of pointer for each, then the document index"
    unchanged = "return the sizes unchanged: the end-of-document token is counted in them"
    two = "the second document has two sequences: read the document index instead of counting from 0"
    cases: list[Case] = [
        ((_Index(8, 2, []),), (8, [], [0]), header),
        ((_Index(8, 2, [[3]]),), (8, [3], [0, 1]), body, (((8, [2], [0, 1]), unchanged),)),
        ((_Index(4, 4, [[4], [3, 2]]),), (4, [4, 3, 2], [0, 1, 3]), two),
    ]
    problem = run_cases(answer, cases)
    if problem and "raised error" in problem:
        return f"{problem.partition('): ')[0]}): begin each format of struct with '<' (little-endian without gaps)."
    return problem


def zero_bytes(parameters: int, ranks: int, stage: int) -> float:
    """Return the number of bytes that weights, gradients and optimizer states take on each GPU.

    Training uses mixed precision and Adam. Source: ZeRO, Rajbhandari et al. 2020, arXiv:1910.02054.
    """
    weights = 2 * parameters / (ranks if stage >= 3 else 1)
    gradients = 2 * parameters / (ranks if stage >= 2 else 1)
    optimizer = 12 * parameters / (ranks if stage >= 1 else 1)
    return weights + gradients + optimizer


def learning_rate(step: int, warmup: int, decay: int, high: float, low: float) -> float:
    """Return the learning rate for update `step` (from 1): linear warm-up to `high`, then half a cosine to `low`."""
    from math import cos, pi

    if step <= warmup:
        return high * step / warmup
    if step >= decay:
        return low
    share = (step - warmup) / (decay - warmup)
    return low + (high - low) * (1 + cos(pi * share)) / 2


CHAPTER = Chapter(
    Exercise(
        "write a function read_index(content) that gives the dtype code, the sizes and the document index "
        "of the bytes of an .idx",
        _check_index,
        (
            "struct.unpack_from('<9sQBQQ', content) reads the header: magic, version, dtype code, S sequences, "
            "D entries.",
            "The sizes are f'<{S}i' at byte 34; the document index is f'<{D}q' after 4·S bytes of sizes "
            "and 8·S bytes of pointers.",
        ),
        read_index,
        "The index alone gives the number of tokens and the start of each document, however large the .bin file is.",
    ),
    Exercise(
        "write a function zero_bytes(parameters, ranks, stage): bytes of weights, gradients and optimizer states "
        "on each GPU",
        (
            (
                (1000, 4, 0),
                16_000,
                "stage 0 shards nothing: every GPU holds 2 + 2 + 12 bytes per parameter",
                ((12_000, "the optimizer states are not all: weights and gradients take 2 bytes each"),),
            ),
            (
                (1_557_200_000, 2, 1),
                15_572_000_000,
                "stage 1 shards the optimizer states alone, which are 12 bytes with the fp32 weights: 2 + 2 + 12/2",
            ),
            (
                (1_557_200_000, 8, 2),
                5_839_500_000,
                "stage 2 shards gradients too, but each GPU keeps all weights: 2 + (2 + 12)/8",
            ),
            ((1_557_200_000, 4, 3), 6_228_800_000, "stage 3 shards all three: (2 + 2 + 12)/4"),
        ),
        (
            "In mixed precision a parameter takes 2 bytes of weight, 2 of gradient and 12 of optimizer states.",
            "Divide the optimizer states by ranks from stage 1 on, the gradients from stage 2 on, "
            "and the weights from stage 3 on.",
        ),
        zero_bytes,
        "ZeRO stage 2 shards 14 of the 16 bytes and sends no more data than plain data parallelism. Stage 3 shards all "
        "16 bytes and sends 50 % more data.",
    ),
    Exercise(
        "write a function learning_rate(step, warmup, decay, high, low): linear warm-up, half a cosine down to low, "
        "then low",
        (
            ((1, 10, 110, 1.0, 0.2), 0.1, "updates count from 1, so the first has one tenth of high"),
            (
                (60, 10, 110, 1.0, 0.0),
                0.5,
                "half of the decay is over, because it begins after the warm-up: the share is (60 - 10)/(110 - 10)",
            ),
            (
                (35, 10, 110, 1.0, 0.0),
                0.5 + cos(pi / 4) / 2,
                "a quarter of the decay is over; 1 + cos falls, 1 - cos would rise, a straight line would give 0.75",
            ),
            (
                (35, 10, 110, 1.0, 0.2),
                0.6 + 0.4 * cos(pi / 4),
                "the learning rate falls to low, not to 0: multiply high - low by the cosine term, then add low",
            ),
            (
                (160, 10, 110, 1.0, 0.2),
                0.2,
                "after the decay the learning rate stays at low; the cosine would rise again",
            ),
        ),
        (
            "There are three cases: up to step warmup, from step decay on, and between them. Updates count from 1.",
            "Between them, share = (step - warmup)/(decay - warmup), and (1 + cos(pi * share))/2 falls from 1 to 0.",
        ),
        learning_rate,
        "With high and low exchanged, the same formula rises after the warm-up.",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution

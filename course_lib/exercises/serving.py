"""Exercises for chapter 7: weight order and files in FasterTransformer, and Triton's bad_words_list."""

from course_lib.exercises import Chapter, Exercise


def reorder(rows: list[str], heads: int) -> list[str]:
    """Reorder the rows of a GPT-NeoX query_key_value weight for FasterTransformer: queries, then keys, then values."""
    size = len(rows) // (3 * heads)
    return [
        rows[(head * 3 + part) * size + index] for part in range(3) for head in range(heads) for index in range(size)
    ]


def files(layers: int, ranks: int, parallel_residual: bool) -> int:
    """Return the number of files in a FasterTransformer folder for a GPT-NeoX model, including config.ini."""
    layer = 6 + 6 * ranks + parallel_residual
    return layers * layer + 4 + 1


def word_list(words: list[list[int]]) -> list[list[int]]:
    """Convert words to avoid to Triton's bad_words_list: one row with all ids, and one with the end of each word."""
    ids = [number for word in words for number in word]
    ends = [sum(map(len, words[: index + 1])) for index in range(len(words))]
    return [ids, ends + [-1] * (len(ids) - len(ends))]


CHAPTER = Chapter(
    Exercise(
        "write a function reorder(rows, heads): the rows of a GPT-NeoX query_key_value in FasterTransformer's order",
        (
            (
                (["q0", "k0", "v0", "q1", "k1", "v1"], 2),
                ["q0", "q1", "k0", "k1", "v0", "v1"],
                "the Hugging Face order is query, key and value of head 0, then of head 1",
                ((["k0", "k1", "q0", "q1", "v0", "v1"], "the queries come first, then the keys, then the values"),),
            ),
            (
                (["q00", "q01", "k00", "k01", "v00", "v01", "q10", "q11", "k10", "k11", "v10", "v11"], 2),
                ["q00", "q01", "q10", "q11", "k00", "k01", "k10", "k11", "v00", "v01", "v10", "v11"],
                "the rows of one head stay together in their order",
            ),
            (
                (["q0", "q1", "k0", "k1", "v0", "v1"], 1),
                ["q0", "q1", "k0", "k1", "v0", "v1"],
                "with one head the order does not change",
            ),
        ),
        (
            "In the Hugging Face order, row (head·3 + part)·size + index is row `index` of a head's query (part 0), "
            "key (1) or value (2).",
            "Loop over part, then head, then index, and take that row: a list comprehension with three `for`.",
        ),
        reorder,
        "The library views the tensor as [heads, 3, size, …] and swaps the first two axes.",
    ),
    Exercise(
        "write a function files(layers, ranks, parallel_residual): how many files a GPT-NeoX folder holds, "
        "config.ini included",
        (
            ((12, 1, False), 149, "12 files per layer, 4 for the whole model, and config.ini"),
            (
                (12, 2, False),
                221,
                "of a layer's 12 tensors the norms (4) and the biases of the two row-parallel matrices (2) are not "
                "split; the other 6 are split into one file for each rank",
            ),
            ((1, 4, True), 36, "with parallel residual a layer has one file more: the sum of two biases"),
        ),
        (
            "A layer has 12 tensors: 6 that are not split (four of the norms, two biases) and 6 that are split into "
            "one file per rank. Parallel residual adds one file.",
            "Four more files belong to the whole model (embedding, head, and two of the last norm), "
            "and config.ini is one more.",
        ),
        files,
        "If a file is missing, the engine only warns and continues with whatever was in its buffer. So count the "
        "files, or run `course ft inspect`.",
    ),
    Exercise(
        "write a function word_list(words): words to avoid, each a list of ids, "
        "as Triton's bad_words_list of one request",
        (
            (
                ([[5, 6]],),
                [[5, 6], [2, -1]],
                "one word of two tokens ends at 2; the row of ends is padded with -1",
                (([[5, 6], [2]], "both rows have the same length: fill the row of ends with -1"),),
            ),
            (
                ([[5, 6], [7], [8, 9, 10]],),
                [[5, 6, 7, 8, 9, 10], [2, 3, 6, -1, -1, -1]],
                "ends are counted from the start of the list: 2, 2 + 1, 2 + 1 + 3",
            ),
            (([[5], [6]],), [[5, 6], [1, 2]], "with words of one token, neither row needs padding"),
        ),
        (
            "The first row has the ids of all words one after the other. The second row has, for each word, its end in "
            "the first row.",
            "The second row is padded with -1 to the length of the first.",
        ),
        word_list,
        "stop_words_list has the same format. Both are int32 and begin with a batch axis: [batch, 2, length].",
    ),
)
check, hint, solution = CHAPTER.check, CHAPTER.hint, CHAPTER.solution

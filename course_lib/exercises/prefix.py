"""Exercises for chapter 6: prefix parameters, example labels, mask and positions in a batch, and a length to choose."""

from functools import cache
from statistics import mean, stdev
from typing import Any

from course_lib.exercises import Chapter, Exercise
from course_lib.language.words import tr

# How many lengths the experiment of exercise 4 needs at least.
LENGTHS = 3


def parameters(length: int, layers: int, width: int, input_dim: int, hidden_dim: int) -> tuple[int, int]:
    """Return the number of trained parameters and of deployed parameters in prefix tuning with an MLP.

    Source: Prefix-Tuning, Li and Liang 2021, arXiv:2101.00190.
    """
    row = 2 * layers * width
    embedding = length * input_dim
    mlp = input_dim * hidden_dim + hidden_dim + hidden_dim * row + row
    return embedding + mlp, length * row


def example(prompt: list[int], target: list[int], end: int) -> tuple[list[int], list[int]]:
    """Return the input ids for the model and the label at each position, -100 where nothing is learned."""
    ids = [*prompt, *target, end]
    return ids[:-1], [-100] * (len(prompt) - 1) + ids[len(prompt) :]


def slots(prefix: int, tokens: int, longest_prefix: int, longest_tokens: int) -> tuple[list[int], list[int]]:
    """Return the attention mask for a sequence in a batch, and the positions of its tokens."""
    mask = [0] * (longest_prefix - prefix) + [1] * prefix + [0] * (longest_tokens - tokens) + [1] * tokens
    return mask, [prefix + index for index in range(tokens)]


@cache
def _shares(length: int) -> list[float]:
    """Train as the notebook's cell does, and return the share of exact matches for each seed."""
    from course_lib.prefix import products
    from course_lib.prefix.comparison import over_seeds

    hurried = products.quick_settings("plain", "engine.max_steps=50")
    return [run.matches for run in over_seeds(hurried, {"": [f"model.length={length}"]})[""].runs]


def _check_length(answer: Any) -> str | None:
    """Train every length that the learner tried, and judge the chosen one by these runs."""
    chosen, tried = answer
    if (number := len(set(tried))) < LENGTHS:
        return tr("you tried {number} lengths; {lengths} show where more stop helping.", number=number, lengths=LENGTHS)
    shares = {length: _shares(length) for length in sorted(tried)}
    means = {length: mean(values) for length, values in shares.items()}
    best = max(means, key=lambda length: (means[length], -length))
    floor = means[best] - stdev(shares[best])
    shortest = min(length for length in shares if means[length] >= floor)
    if means[chosen] < floor:
        found = {"share": means[chosen], "best": means[best]}
        return tr("{share:.0%} is below {best:.0%} by more than the spread there.", **found)
    if chosen > shortest:
        found = {"share": means[shortest], "shortest": shortest}
        return tr("{share:.0%} at {shortest} is within the spread of the best, with fewer positions.", **found)
    return None


CHAPTER = Chapter(
    Exercise(
        "write a function parameters(length, layers, width, input_dim, hidden_dim): how many numbers are trained, "
        "and how many deployed",
        (
            (
                (10, 12, 768, 10, 10),
                "a row is a key and a value in each layer, so 10 rows of 2·12·768 numbers are deployed; trained are an "
                "embedding of 10 × 10 and two linear layers with biases",
            ),
            ((20, 36, 2816, 64, 64), "these are the sizes of the published run"),
        ),
        (
            "One position of the prefix is a key and a value in each layer, each of the model's width. "
            "That is a row; `length` rows are deployed.",
            "The trained parameters are the embedding (length × input_dim) and two linear layers with biases: "
            "input_dim → hidden_dim → a row.",
        ),
        parameters,
        "The MLP only stabilizes training and is not deployed. Neither count includes the parameters of the base.",
    ),
    Exercise(
        "write a function example(prompt, target, end): what the model reads, and for each position the token that "
        "it must predict there, which is the next one (-100 where nothing is learned)",
        (
            (([5], [8], 2), "the label at a position is the next token; the model does not read the end"),
            (([5, 6, 7], [8, 9], 2), "at 7 the model predicts the target; what it predicts before is not learned"),
        ),
        (
            "The whole text is prompt + target + [end]. The model reads all tokens but the last; "
            "the label at a position is the next token.",
            "The first learned label is at the last token of the prompt, after len(prompt) - 1 times -100.",
        ),
        example,
        "The text has exactly one end token. A tokenizer that adds an end token too would double it, as in the "
        "published training script.",
    ),
    Exercise(
        "write a function slots(prefix, tokens, longest_prefix, longest_tokens): a row's attention mask in a batch, "
        "and its tokens' positions",
        (
            ((2, 3, 2, 3), "the tokens' positions come after the prefix"),
            ((2, 3, 2, 5), "the text is padded on the left, after the prefix"),
            ((2, 3, 4, 3), "the prefix is padded on the left, too, and padding takes no position"),
        ),
        (
            "The first columns are those of the longest prefix, the others those of the longest text; "
            "both parts are padded on the left with 0.",
            "Padding does not count: the position of the first token is `prefix`, however wide the batch is.",
        ),
        slots,
        "In this way a server answers requests for different tasks in one batch: each row sees only its own prefix.",
    ),
    Exercise(
        f"choose the shortest length that is good enough, from at least {LENGTHS} that you tried: "
        "(length, [tried lengths])",
        _check_length,
        (
            "Good enough is what the seeds cannot tell from the best: its mean is at most one standard deviation of "
            "the best length's runs below the best mean.",
            "over_seeds(settings, {str(n): [f'model.length={n}'] for n in tried}) trains; runs.matches of each has the "
            "mean and the deviation.",
        ),
        (1, [1, 2, 5, 20]),
        "After 50 steps, 1, 2, 5 and 20 positions have 28, 31, 29 and 24 % exact matches, with standard deviations of "
        "3 to 10 points: the seeds do not tell them apart. A longer prefix costs memory and time in every request. The "
        "simplest setting within the spread of the best is also the choice of the one-standard-error rule (Breiman et "
        "al. 1984, Classification and Regression Trees).",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

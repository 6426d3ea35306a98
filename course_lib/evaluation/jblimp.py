"""JBLiMP's file of minimal pairs and its authors' table (Someya and Oseki 2023).

Paper: https://aclanthology.org/2023.findings-eacl.117. The pairs are sentences of linguistics articles, whose copyright
remains with their authors and publishers; the course reads them from a clone of the repository and has no copy.
"""

from collections.abc import Mapping
from pathlib import Path

from course_lib.language.words import tr_noop

SOURCE = "https://github.com/osekilab/JBLiMP"
# The 331 pairs that people agreed on, and the keys of their sentences.
FILE = Path("data/validated/validated_minimal_pairs.jsonl")
KEYS = ("good_sentence", "bad_sentence")

# Number of pairs by phenomenon, in the order of the paper's table.
PAIRS = {
    "all": 331,
    "argument structure": 140,
    "verbal agreement": 61,
    "morphology": 35,
    "nominal structure": 23,
    "ellipsis": 19,
    "quantifiers": 14,
    "binding": 13,
    "island effects": 11,
    "filler-gap": 9,
    "NPI licensing": 4,
    "control/raising": 2,
}
# Accuracies [%] of table 5, in the order of PAIRS. Trans-LG and Trans-SM are GPT-2 of 24 and 8 layers, trained like the
# LSTM on about 5 million sentences of news and Wikipedia. A value is a mean of three seeds, except 5-gram and people.
# fmt: off
PUBLISHED = {
    "Trans-LG": (77.95, 89.05, 53.55, 82.86, 95.65, 85.96, 73.81, 58.97, 75.76, 55.56, 50.00, 16.67),
    "Trans-SM": (76.54, 89.05, 44.26, 82.86, 97.10, 89.47, 71.43, 46.15, 84.85, 55.56, 75.00, 0.00),
    "LSTM": (75.73, 86.67, 46.99, 83.81, 95.65, 91.23, 66.67, 41.03, 87.88, 44.44, 66.67, 50.00),
    "5-gram": (74.02, 78.57, 57.38, 82.86, 86.96, 89.47, 78.57, 53.85, 72.73, 66.67, 50.00, 0.00),
    tr_noop("humans"): (90.90, 92.19, 89.62, 94.86, 97.68, 87.37, 85.71, 82.05, 92.12, 78.52, 90.00, 70.00),
}
# fmt: on
NOTE = tr_noop(
    "{models}: the sentence with the higher sum of the log probabilities of its tokens. Trans-LG to people: table 5 of "
    "Someya and Oseki 2023, whose models choose by SLOR: log probability minus unigram log probability, per token."
)


def published(pairs: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return {model: {phenomenon: accuracy [%]}} of the paper if these numbers of pairs are JBLiMP's, otherwise {}."""
    if pairs != PAIRS:
        return {}
    return {model: dict(zip(PAIRS, values, strict=True)) for model, values in PUBLISHED.items()}

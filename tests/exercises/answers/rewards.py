"""Other right answers, and wrong ones, to the exercises of notebook 6b. The wrong ones are often edits of its folded cells."""

from typing import Any

import torch
from course_lib.exercises.rewards import RUNS
from torch.nn import functional

from tests.exercises.answers.folded import Folded

FOLDED = Folded("06_rewards", torch=torch, functional=functional)
COURSE, changed = FOLDED.names, FOLDED.changed
NAMES = {**COURSE}
NAMED = {letter: name for letter, (name, _) in RUNS.items()}
RIGHT: dict[int, list[Any]] = {
    1: [lambda rewards: rewards - rewards.sum(-1, keepdim=True) / rewards.shape[-1]],
    2: [
        lambda logits, ids, mask: (
            -(functional.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none") * mask[:, 1:]).sum(-1)
        )
    ],
    4: [lambda good, bad, strength: functional.softplus(strength * (bad - good)).sum()],
}
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda rewards: rewards, "subtract the mean of the group"),
        (changed("advantage_ours", ("mean(-1, keepdim=True)", "mean()")), "a mean of its own"),
        (changed("advantage_ours", ("mean(-1, keepdim=True)", "mean(0)")), "runs over the texts"),
        (lambda rewards: rewards.mean(-1, keepdim=True) - rewards, "the sign"),
        (lambda rewards: (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-6), "not divided"),
    ],
    2: [
        (changed("log_probabilities_ours", ("mask[:, 1:]", "mask[:, :-1]")), "the mask stands at"),
        (changed("log_probabilities_ours", (" * mask[:, 1:]", "")), "prompt and padding count"),
        (changed("log_probabilities_ours", ("logits[:, :-1]", "logits"), ("ids[:, 1:, None]", "ids[..., None]"),
                 ("mask[:, 1:]", "mask")), "of the next token"),
        (changed("log_probabilities_ours", (".sum(1)", ".sum(1) / mask.sum(1)")), "not their mean"),
        (changed("log_probabilities_ours", (".sum(1)", ".sum()")), "one number for each text"),
        (changed("log_probabilities_ours", (".log_softmax(-1)", "")), "the largest difference from PyTorch"),
    ],
    3: [
        ("ABCD", "hand in a dictionary"),
        ({**NAMED, "A": "DPO"}, "A is called 'DPO'; allowed: "),
        ({**NAMED, "A": NAMED["B"], "B": NAMED["A"]}, "A is not 'empty prompt'"),
        ({**NAMED, "C": NAMED["D"], "D": NAMED["C"]}, "C is not 'only right'"),
    ],
    4: [
        (changed("preference_loss_ours", ("good - bad", "bad - good")), "good − bad"),
        (changed("preference_loss_ours", ("strength * (good - bad)", "good - bad")), "multiplies the difference"),
        (changed("preference_loss_ours", (".sum()", ".mean()")), "not their mean"),
        (lambda good, bad, strength: -torch.sigmoid(strength * (good - bad)).log().sum(), "is infinite"),
        (lambda good, bad, strength: -(strength * (good - bad)).sum(), "logsigmoid is missing"),
    ],
}  # fmt: skip

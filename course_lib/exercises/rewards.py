"""Exercises for the optional part of chapter 6: the advantage, a text's log probability, four runs' curves, DPO.

An answer that equals a usual mistake gets that mistake's advice.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Exercise, from_notebook
from course_lib.exercises.answers import judge_tensors
from course_lib.language.words import tr, tr_noop

NOTEBOOK = "06_rewards"
# Exercise 6b.3: the run behind each letter, and what its curves show.
RUNS = {
    "A": ("brevity", tr_noop("look at the length of its texts")),
    "B": ("empty prompt", tr_noop("look at the last panel")),
    "C": ("high rate", tr_noop("the reward falls at once and does not come back")),
    "D": ("only right", tr_noop("nothing breaks; compare its reward with that of the group mean in 6b.3")),
}


# Exercise 6b.1: advantage
def _check_advantage(advantage: Any) -> str | None:
    def right(rewards: Tensor) -> Tensor:
        return rewards - rewards.mean(-1, keepdim=True)

    mistakes = (
        (lambda r: r, tr_noop("these are the rewards: subtract the mean of the group")),
        (lambda r: r - r.mean(), tr_noop("each group has a mean of its own: mean(-1, keepdim=True)")),
        (lambda r: r - r.mean(0), tr_noop("the last axis runs over the texts of a group")),
        (lambda r: -right(r), tr_noop("the sign: a text above its group's mean has a positive advantage")),
        (lambda r: right(r) / (r.std(-1, keepdim=True) + 1e-6),
         tr_noop("here the difference is not divided by the standard deviation")),
        (lambda r: right(r) / (r.std(-1, keepdim=True, correction=0) + 1e-6),
         tr_noop("here the difference is not divided by the standard deviation")),
    )  # fmt: skip
    groups = torch.tensor([[1.0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]])
    return judge_tensors(advantage, [((groups,), right), ((groups[0],), right)], mistakes, tr_noop("the right ones"))


# Exercise 6b.2: log_probabilities
def _check_log_probabilities(log_probabilities: Any) -> str | None:
    def tokens(logits: Tensor, ids: Tensor) -> Tensor:
        return -functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")

    def right(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        return (tokens(logits, ids) * mask[:, 1:]).sum(1)

    def unshifted(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        return (logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0] * mask).sum(1)

    mistakes = (
        (unshifted, tr_noop("the logits at a position are of the next token: logits[:, :-1] belong to ids[:, 1:]")),
        (lambda logits, ids, mask: (tokens(logits, ids) * mask[:, :-1]).sum(1),
         tr_noop("the mask stands at the tokens that are predicted: mask[:, 1:]")),
        (lambda logits, ids, mask: tokens(logits, ids).sum(1), tr_noop("prompt and padding count, too: use the mask")),
        (lambda logits, ids, mask: right(logits, ids, mask) / mask.sum(1),
         tr_noop("the log probability of a text is the sum over its tokens, not their mean")),
        (lambda logits, ids, mask: right(logits, ids, mask).sum(), tr_noop("one number for each text: sum(1)")),
        (lambda logits, ids, mask: -right(logits, ids, mask), tr_noop("the sign: a log probability is at most 0")),
    )  # fmt: skip
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(3, 6, 5, generator=random)
    ids = torch.randint(5, (3, 6), generator=random)
    mask = torch.tensor([[0.0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0], [0, 0, 1, 0, 0, 0]])
    return judge_tensors(log_probabilities, [((logits, ids, mask), right)], mistakes, "PyTorch")


# Exercise 6b.3: the names of four runs
def _check_names(answer: Any) -> str | None:
    allowed = ", ".join(name for name, _ in RUNS.values())
    if not isinstance(answer, dict) or {*answer} != {*RUNS}:
        return tr('hand in a dictionary with a name for each letter: {{"A": …, "B": …, "C": …, "D": …}}.')
    for letter, name in answer.items():
        if name not in allowed.split(", "):
            return tr("{letter} is called {name!r}; allowed: {allowed}.", letter=letter, name=name, allowed=allowed)
    for letter, (name, advice) in RUNS.items():
        if answer[letter] != name:
            found = answer[letter]
            return tr("{letter} is not {found!r}: {advice}.", letter=letter, found=found, advice=tr(advice))
    return None


# Exercise 6b.4: preference_loss
def _check_preference_loss(preference_loss: Any) -> str | None:
    def right(good: Tensor, bad: Tensor, strength: float) -> Tensor:
        return -functional.logsigmoid(strength * (good - bad)).sum()

    mistakes = (
        (lambda good, bad, strength: right(bad, good, strength),
         tr_noop("the right text has to become more likely than the wrong one: good − bad")),
        (lambda good, bad, strength: -right(good, bad, strength),
         tr_noop("the sign: a loss falls where pairs are right")),
        (lambda good, bad, strength: right(good, bad, 1.0), tr_noop("`strength` multiplies the difference")),
        (lambda good, bad, strength: -functional.logsigmoid(strength * (good - bad)),
         tr_noop("one number for all pairs: sum()")),
        (lambda good, bad, strength: right(good, bad, strength) / len(good),
         tr_noop("the sum of the pairs, not their mean")),
        (lambda good, bad, strength: -(strength * (good - bad)).sum(), tr_noop("logsigmoid is missing")),
        (lambda good, bad, strength: -torch.sigmoid(strength * (good - bad)).sum(),
         tr_noop("the logarithm is missing")),
        (lambda good, bad, strength: -torch.sigmoid(strength * (good - bad)).log().sum(),
         tr_noop("the sigmoid of −200 is 0 in float32, whose logarithm is infinite: functional.logsigmoid")),
    )  # fmt: skip
    few = (torch.tensor([1.5, -0.5, 0.0]), torch.tensor([-1.0, 0.25, 0.0]), 0.5)
    far = (torch.tensor([-400.0, 3.0]), torch.tensor([0.0, 1.0]), 0.5)
    return judge_tensors(preference_loss, [(few, right), (far, right)], mistakes, "PyTorch")


CHAPTER = Chapter(
    Exercise(
        "write advantage(rewards): from rewards [..., group], each minus the mean of its group",
        _check_advantage,
        ("The group is the last axis.", "mean(-1, keepdim=True) keeps the axis, so that it can be subtracted."),
        from_notebook(NOTEBOOK, "advantage_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write log_probabilities(logits, ids, mask): the log probability of each text's own tokens",
        _check_log_probabilities,
        (
            "As in chapter 4a: the logits at position t are of the token at t + 1.",
            "logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0] is [texts, seq − 1].",
            "Multiply by mask[:, 1:] and sum over axis 1.",
        ),
        from_notebook(NOTEBOOK, "log_probabilities_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "say which run has the curves A, B, C and D: a dictionary of four letters",
        _check_names,
        (
            "What can each run earn a reward by? One of the four has another reward, one another prompt.",
            "One reward is for short texts. One prompt leaves the genre to the model. One rate is far too high.",
            "What is left is the run that looks harmless.",
        ),
        {letter: name for letter, (name, _) in RUNS.items()},
        "Brevity is earned by leaving sentences out, an empty prompt by the easiest genre; a rate that is too high "
        "destroys what the model knew. The curves of right texts only show no fault.",
    ),
    Exercise(
        "write preference_loss(good, bad, strength): DPO's loss of pairs, from their log ratios [pairs]",
        _check_preference_loss,
        (
            "A pair is right if the good text's log ratio is above the bad one's.",
            "−log sigmoid(strength · (good − bad)), summed over the pairs.",
        ),
        from_notebook(NOTEBOOK, "preference_loss_ours"),
        SEE_FOLDED_CELL,
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

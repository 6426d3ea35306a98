"""Other right answers, and wrong ones, to the exercises of notebook 4a. The wrong ones are often edits of its folded cells."""

from typing import Any

import numpy as np
import torch
from course_lib.exercises.by_hand import FAULTS
from torch import nn

from tests.exercises.answers.folded import Folded

FOLDED = Folded("04_gpt2_by_hand", torch=torch, nn=nn, np=np)
COURSE, changed = FOLDED.names, FOLDED.changed


class Bytes(nn.Module):
    """A model of the text "abc" repeated, right or wrong by so many letters; `ahead` lets it read the next byte."""

    def __init__(self, shift: int = 1, ahead: bool = False, size: int = 256) -> None:
        super().__init__()
        self.shift, self.ahead, self.size = shift, ahead, size

    def forward(self, ids: Any) -> Any:
        following = 97 + (ids - 97 + self.shift) % 3
        scale = ids.shape[1] if self.ahead else 9
        return scale * nn.functional.one_hot(following, self.size).float()


# rate → held-out loss after 60 steps
LOSSES = {0.003: 4.2, 0.004: 4.0, 0.012: 3.3, 0.08: 4.12, 2.0: float("nan")}


def trial(rate: float, seeds: tuple[int, ...]) -> float:
    """The notebook's experiment, without its training."""
    assert 0 not in seeds and 1 not in seeds, "not judged with what it was chosen with"
    return LOSSES[round(float(rate), 4)]


def diagnosis(**wrong: str) -> dict[str, str]:
    """The right diagnosis, but for some runs."""
    return FAULTS | wrong


NAMES = {
    **COURSE, "trial": trial, "GPT2": lambda *sizes, **named: Bytes(),
    "learn": lambda *given, **named: [], "draw": lambda *given: [],
}  # fmt: skip
RIGHT: dict[int, list[Any]] = {
    1: [lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)],
    5: [lambda x, y: nn.functional.cross_entropy(x.flatten(0, 1), y.flatten())],
    7: [lambda *given, **named: list(COURSE["learn_ours"](*given, **named))],
    9: [diagnosis()],
    12: [(trial, np.float32(0.012)), (trial, torch.tensor(0.012))],
    13: [lambda data: Bytes()],
}
MASKED = ".masked_fill(future, -torch.inf).softmax(-1)"
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (changed("attend_ours", (MASKED, ".softmax(-1)")), "tokens read from later ones"),
        (changed("attend_ours", (" / size**0.5", "")), "divide the scores"),
        (changed("attend_ours", (MASKED, ".softmax(-1).masked_fill(future, 0)")), "before the softmax"),
        (changed("attend_ours", ("-torch.inf", "0")), "still counts"),
        (changed("attend_ours", ("triu(1)", "triu(0)")), "may read itself"),
        (changed("attend_ours", ("softmax(-1)", "softmax(-2)")), "along a row"),
        (changed("attend_ours", (" @ v", "")), "expected the shape"),
        (lambda q, k, v: print(end=""), "end with return"),
    ],
    2: [
        (changed("AttentionOurs", ("self.c_proj(read)", "read")), "mixes the heads"),
        (changed("AttentionOurs", ("read = attend(q, k, v).transpose(1, 2)", "read = attend(q, k, v)")), "put the heads back"),
        (changed("AttentionOurs", ("view(batch, seq, self.heads, -1).transpose(1, 2)", "reshape(batch, self.heads, seq, -1)")), "mixes positions"),
        (changed("AttentionOurs", ("q, k, v = (", "k, q, v = (")), "queries, keys, values"),
        (changed("AttentionOurs", ("c_attn", "qkv")), "keep the names"),
    ],
    3: [
        (changed("BlockOurs", ("x = x + self.attn", "x = self.attn")), "attention's result is added"),
        (changed("BlockOurs", ("return x + self.mlp", "return self.mlp")), "the MLP's result is added"),
        (changed("BlockOurs", ("self.mlp(self.ln_2(x))", "self.mlp(x)")), "ln_2 stands before"),
        (changed("BlockOurs", ("x = x + self.attn", "y = x + self.attn"), ("return x +", "return y +")), "use the new x"),
    ],
    4: [
        (changed("GPT2Ours", (" + self.wpe.weight[start : start + ids.shape[1]]", "")), "rows of wpe"),
        (changed("GPT2Ours", ("start : start + ids.shape[1]", ": ids.shape[1]")), "begin at `start`"),
        (changed("GPT2Ours", ("self.ln_f(x)", "x")), "ln_f stands before"),
        (changed("GPT2Ours", ("x = block(x)", "block(x)")), "goes through the blocks"),
    ],
    5: [
        (changed("cross_entropy_ours", ("return -", "return ")), "the sign"),
        (changed("cross_entropy_ours", (".mean()", ".sum()")), "not the sum"),
        (changed("cross_entropy_ours", ("log_softmax", "softmax")), "."),
        (changed("cross_entropy_ours", ("logits.log_softmax(-1)", "logits")), "log_softmax first"),
        (changed("cross_entropy_ours", ("log_softmax(-1)", "softmax(-1).log()")), "infinite"),
    ],
    6: [
        (changed("AdamWOurs", ("if weight.dim() > 1:", "if True:")), "are not decayed"),
        (changed("AdamWOurs", ("weight.mul_(1 - rate * self.decay)", "pass")), "weight decay is missing"),
        (changed("AdamWOurs", ("weight.grad = None", "pass")), "clear each gradient"),
        (changed("AdamWOurs", ("self.t += 1", "self.t = 1")), "t does not grow"),
        (changed("AdamWOurs", ("weight.sub_(rate * corrected / spread)", "weight = weight - rate * corrected"),
                 ("weight.mul_(1 - rate * self.decay)", "pass")), "have not changed"),
    ],
    7: [
        (changed("learn_ours", ("batch[:, :-1]), batch[:, 1:]", "batch), batch")), "its own targets"),
        (changed("learn_ours", ("min(t / warm_up, 1) * ", "")), "rises for `warm_up` steps"),
        (changed("learn_ours", ("for t, batch", "warm_up = 20\n    for t, batch")), "not always 20"),
        (changed("learn_ours", ("if clip:", "if False:")), "shorten longer gradients"),
        (changed("learn_ours", (" * late", "")), "half a cosine"),
        (changed("learn_ours", ("loss.backward()", "pass")), "loss.backward(), then"),
        (changed("learn_ours", ("        optimizer.step(", "        float(")), "do not change"),
        (lambda model, optimizer, batches, rate: [], "one a batch"),
    ],
    8: [
        (COURSE["attend_ours"], "cannot be judged"),
        (changed("attend_cached", ("1 + columns - rows", "1")), "move the diagonal"),
        (changed("attend_cached", ("torch.ones(rows, columns).triu(1 + columns - rows)",
                                   "torch.ones(rows, columns).triu(1).mul(rows == columns)")), "each other's future"),
    ],
    9: [
        (diagnosis(A="leak", B="dropout"), "compare the two numbers"),
        (diagnosis(B="seen", D="leak"), "when it writes"),
        (diagnosis(C="leak"), "what did it read"),
        (diagnosis(D="copies"), "which documents"),
        (diagnosis(E="dropout"), "near the unigram model"),
        (diagnosis(F="leak"), "repeats one token"),
        (diagnosis(F="mask"), "allowed: copies"),
        ({"A": "dropout"}, "a name for each"),
        (["dropout", "leak"], "a name for each"),
    ],
    10: [
        (changed("log_probability_ours", (".sum(-1)", ".mean(-1)")), "not the mean"),
        (changed("log_probability_ours", ("return logp", "return -logp")), "the sign"),
        (changed("log_probability_ours", (".sum(-1)", ".sum()")), "not one for all"),
        (changed("log_probability_ours", (".sum(-1)", "")), "the sum over its tokens"),
        (changed("log_probability_ours", ("ids[:, :-1]", "ids"), ("ids[:, 1:, None]", "ids[..., None]")), "are scored"),
        (changed("log_probability_ours", (".log_softmax(-1)", "")), "log_softmax first"),
        (changed("log_probability_ours", (".log_softmax(-1)", ".softmax(-1)")), "the logarithm is missing"),
    ],
    11: [
        (changed("top_p_ours", (" / kept.sum(-1, keepdim=True)", "")), "adds up to 1"),
        (changed("top_p_ours", (" - ordered", "")), "with which the sum reaches p"),
        (lambda chances, p: nn.functional.normalize(chances * (chances >= p), p=1, dim=-1), "not with each one"),
        (changed("top_p_ours", ("torch.zeros_like(chances).scatter(-1, places, ordered * (before < p))",
                                "ordered * (before < p)")), "put the probabilities back"),
    ],
    12: [
        (4e-2, "The task: find a learning rate"),
        ((trial, 0.004), "too cautious"),
        ((trial, 0.08), "too high"),
        ((trial, 2.0), "overshoots"),
    ],
    13: [
        (lambda data: Bytes(shift=2), "worse than the frequencies"),
        (lambda data: Bytes(ahead=True), "looks ahead"),
        (lambda data: Bytes(size=300), "expected logits"),
        (2.1, "The task: write byte_model"),
    ],
}  # fmt: skip

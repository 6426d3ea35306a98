"""Exercises of notebook 4a: the parts of GPT-2, training, six faults, a judge of sentences, decoding, two experiments.

The checks compare with PyTorch and transformers. An answer that equals a usual mistake gets that mistake's advice.
"""

from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.corpus.products import has_world
from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Code, Exercise, from_notebook
from course_lib.exercises.answers import compare, judge_tensors, known_mistake
from course_lib.language.words import tr, tr_noop
from course_lib.pretrain import by_hand as course

HEADS, HIDDEN, VOCABULARY = 3, 12, 11


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    read: Tensor = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return read


def _scores(q: Tensor, k: Tensor) -> Tensor:
    scores: Tensor = q @ k.mT / q.shape[-1] ** 0.5
    return scores


def _future(rows: int, columns: int, diagonal: int = 1) -> Tensor:
    return torch.ones(rows, columns).triu(diagonal).bool()


# Exercise 4a.1: attend
def _check_attend(attend: Any) -> str | None:
    q, k, v = (_numbers(2, HEADS, 5, 4, seed=seed) for seed in range(3))
    scores, future = _scores(q, k), _future(5, 5)
    hidden = scores.masked_fill(future, -torch.inf)
    mistakes = (
        (scores.softmax(-1) @ v, tr_noop("tokens read from later ones: set the scores right of the diagonal to -inf")),
        ((2 * hidden).softmax(-1) @ v, tr_noop("divide the scores by the root of the size of q")),
        (scores.softmax(-1).masked_fill(future, 0) @ v,
         tr_noop("mask before the softmax, so that each row still adds up to 1")),
        (scores.masked_fill(future, 0).softmax(-1) @ v,
         tr_noop("a score of 0 still counts, because e^0 = 1: mask with -inf")),
        (hidden.softmax(-2) @ v, tr_noop("the softmax goes along a row: dim=-1")),
        (scores.mT.masked_fill(future, -torch.inf).softmax(-1) @ v,
         tr_noop("rows are queries: q @ k.mT, not k @ q.mT")),
        (scores.masked_fill(future.mT, -torch.inf).softmax(-1) @ v,
         tr_noop("tokens read from later ones only: triu(1), not tril")),
        (scores.masked_fill(_future(5, 5, 0), -torch.inf).softmax(-1) @ v,
         tr_noop("some numbers are not finite: each token may read itself, so triu(1), not triu(0)")),
    )  # fmt: skip
    return judge_tensors(attend, [((q, k, v), _causal)], mistakes, "scaled_dot_product_attention")


# Exercise 4a.8: attend_stored
def _check_cached(attend: Any) -> str | None:
    if problem := _check_attend(attend):
        return problem
    q, k, v = (_numbers(2, HEADS, 5, 4, seed=seed) for seed in range(3))
    # The last row or the last two, with all keys and values.
    cases = [((q[:, :, -rows:], k, v), _causal(q, k, v)[:, :, -rows:]) for rows in (1, 2)]
    mistakes = (
        (lambda q, k, v: _scores(q, k).masked_fill(_future(q.shape[-2], 5), -torch.inf).softmax(-1) @ v,
         tr_noop("the new rows must see all stored columns: move the diagonal by the number of stored keys")),
        (lambda q, k, v: _scores(q, k).softmax(-1) @ v,
         tr_noop("several new rows must not see each other's future: mask them, too")),
    )  # fmt: skip
    return judge_tensors(attend, cases, mistakes, tr_noop("the last rows without a cache"))


def _library() -> Any:
    """Return a small GPT-2 of transformers with random weights, biases and norms too."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=VOCABULARY, n_positions=9, n_embd=HIDDEN, n_layer=2, n_head=HEADS,
                        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)  # fmt: skip
    model = GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for number, weight in enumerate(model.transformer.parameters()):
            weight.copy_(0.4 * _numbers(*weight.shape, seed=number) + (weight.dim() == 1))
    return model


def _loaded(made: Any, source: Any) -> Any:
    """Return a learner's module with the weights of the library's."""
    made = made.double()
    theirs = source.state_dict()
    names = made.state_dict().keys() ^ {name for name in theirs if name.rpartition(".")[2] in ("weight", "bias")}
    if names:
        raise KeyError(tr("keep the names of __init__; different: {names}", names=", ".join(sorted(names))))
    turned = {name: weight.T if "c_" in name and weight.dim() == 2 else weight for name, weight in theirs.items()}
    made.load_state_dict({name: turned[name] for name in made.state_dict()})
    return made


# Exercise 4a.2: Attention.forward
@torch.no_grad()
def _check_attention(attention: Any) -> str | None:
    peer, x = _library().transformer.h[0].attn, _numbers(2, 5, HIDDEN)
    parts = peer.c_attn(x).chunk(3, -1)
    q, k, v = (part.view(2, 5, HEADS, 4).transpose(1, 2) for part in parts)
    mixed = [part.reshape(2, HEADS, 5, 4) for part in parts]

    def side_by_side(read: Tensor) -> Tensor:
        return read.transpose(1, 2).reshape(2, 5, HIDDEN)

    mistakes = (
        (side_by_side(_causal(q, k, v)), tr_noop("a last linear layer mixes the heads: c_proj")),
        (peer.c_proj(_causal(q, k, v).reshape(2, 5, HIDDEN)),
         tr_noop("put the heads back behind the positions before reshape: transpose(1, 2)")),
        (peer.c_proj(side_by_side(_causal(*mixed))),
         tr_noop("view(batch, heads, seq, -1) mixes positions: view(batch, seq, heads, -1), then transpose(1, 2)")),
        (peer.c_proj(_causal(*parts)),
         tr_noop("this is one head as wide as the model: cut q, k and v into heads first")),
        (peer.c_proj(side_by_side(_causal(k, q, v))), tr_noop("the order of c_attn is queries, keys, values")),
    )  # fmt: skip
    made = _loaded(attention(HIDDEN, HEADS), peer)
    return judge_tensors(made, [((x,), peer(x)[0])], mistakes, "GPT2Attention")


# Exercise 4a.3: Block.forward
@torch.no_grad()
def _check_block(block: Any) -> str | None:
    peer, x = _library().transformer.h[0], _numbers(2, 5, HIDDEN)
    mlp, one, two = peer.mlp, peer.ln_1, peer.ln_2

    def read(y: Tensor) -> Any:
        return peer.attn(y)[0]

    middle, behind = x + read(one(x)), one(x + read(x))
    mistakes = (
        (
            mlp(two(read(one(x)))),
            tr_noop("the block adds to its input twice: x + … for attention, and again for the MLP"),
        ),
        (read(one(x)) + mlp(two(read(one(x)))), tr_noop("attention's result is added to x, too")),
        (mlp(two(middle)), tr_noop("the MLP's result is added, too")),
        (middle + mlp(two(x)), tr_noop("the MLP reads what attention has changed: use the new x")),
        (middle + mlp(middle), tr_noop("ln_2 stands before the MLP")),
        (two(behind + mlp(behind)), tr_noop("in GPT-2, the norms stand before attention and MLP, not behind the sum")),
    )
    made = _loaded(block(HIDDEN, HEADS, 4 * HIDDEN, course.Attention), peer)
    return judge_tensors(made, [((x,), _output(peer, x))], mistakes, "GPT2Block")


def _output(block: Any, x: Tensor) -> Any:
    """Return the result of a block of transformers, some of whose versions return a tuple."""
    result = block(x)
    return result if isinstance(result, Tensor) else result[0]


# Exercise 4a.4: GPT2.forward
@torch.no_grad()
def _check_model(model: Any) -> str | None:
    library = _library()
    peer = library.transformer
    ids = torch.tensor([[1, 4, 2, 0], [3, 3, 10, 5]])
    made = _loaded(model(VOCABULARY, 9, HIDDEN, 2, HEADS, course.Attention), peer)

    def embedded(ids: Tensor, start: int = 0) -> Tensor:
        x: Tensor = peer.wte(ids) + peer.wpe(torch.arange(start, start + 4))
        return x

    def through(x: Tensor, blocks: int = 2) -> Tensor:
        for block in peer.h[:blocks]:
            x = _output(block, x)
        return x

    def logits(x: Tensor) -> Tensor:
        scores: Tensor = x @ peer.wte.weight.T
        return scores

    def right(ids: Tensor, start: int = 0) -> Tensor:
        scores: Tensor = library(ids, position_ids=torch.arange(start, start + 4)[None]).logits
        return scores

    mistakes = (
        (lambda ids, start=0: logits(peer.ln_f(through(peer.wte(ids)))),
         tr_noop("add the rows of wpe: which position each token has")),
        (lambda ids, start=0: logits(peer.ln_f(through(embedded(ids)))), tr_noop("the positions begin at `start`")),
        (lambda ids, start=0: logits(through(embedded(ids, start))), tr_noop("ln_f stands before the output layer")),
        (lambda ids, start=0: logits(peer.ln_f(through(embedded(ids, start), 1))),
         tr_noop("x goes through all blocks")),
        (lambda ids, start=0: logits(peer.ln_f(embedded(ids, start))), tr_noop("x goes through the blocks")),
    )  # fmt: skip
    return judge_tensors(made, [((ids,), right), ((ids, 3), right)], mistakes, "GPT2LMHeadModel")


# Exercise 4a.5: cross_entropy
def _check_loss(loss: Any) -> str | None:
    logits, targets = 3 * _numbers(2, 5, VOCABULARY), torch.arange(10).view(2, 5)

    def right(logits: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def picked(values: Tensor, targets: Tensor) -> Tensor:
        return values.gather(-1, targets[..., None])

    mistakes = (
        (lambda x, y: -picked(x.log_softmax(-1), y).sum(), tr_noop("the mean over the positions, not the sum")),
        (lambda x, y: -picked(x.log_softmax(-1), y)[..., 0], tr_noop("one number: the mean over the positions")),
        (lambda x, y: picked(x.log_softmax(-1), y).mean(),
         tr_noop("the sign: a loss is −ln of a probability, so it is not negative")),
        (lambda x, y: -picked(x.log_softmax(1), y).mean(), tr_noop("softmax over the vocabulary, the last axis")),
        (lambda x, y: picked(x.softmax(-1), y).mean(),
         tr_noop("the logarithm is missing: the mean of −ln p, not of p")),
        (lambda x, y: -picked(x, y).mean(), tr_noop("logits are not yet log-probabilities: log_softmax first")),
        (lambda x, y: -picked(x.softmax(-1).log(), y).mean(),
         tr_noop("with large logits the loss is infinite: use log_softmax, not softmax and then log")),
        (lambda x, y: -picked(x.softmax(-1), y).mean().log(),
         tr_noop("the logarithm of the mean is not the mean of the logarithms")),
    )  # fmt: skip
    cases = [((logits, targets), right), ((1000 * logits, targets), right)]
    return judge_tensors(loss, cases, mistakes, "cross_entropy")


RATES = (1e-2, 2e-2, 1e-2)


def _updated(decayed: float = 0.1, others: float = 0.0, kind: Any = torch.optim.AdamW, **options: Any) -> Tensor:
    """Return a matrix and a bias after three steps of PyTorch's optimizer, as one row."""
    weights = [torch.nn.Parameter(_numbers(3, 2)), torch.nn.Parameter(_numbers(3, seed=1))]
    groups = [{"params": [weights[0]], "weight_decay": decayed}, {"params": [weights[1]], "weight_decay": others}]
    optimizer = kind(groups, betas=(0.9, 0.95), **options)
    for t, rate in enumerate(RATES):
        for number, weight in enumerate(weights):
            weight.grad = _numbers(*weight.shape, seed=10 * t + number)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return torch.cat([weight.detach().flatten() for weight in weights])


# Exercise 4a.6: AdamW.step
def _check_adamw(adamw: Any) -> str | None:
    weights = [torch.nn.Parameter(_numbers(3, 2)), torch.nn.Parameter(_numbers(3, seed=1))]
    optimizer = adamw(iter(weights))
    for t, rate in enumerate(RATES):
        for number, weight in enumerate(weights):
            weight.grad = _numbers(*weight.shape, seed=10 * t + number)
        optimizer.step(rate)
        if torch.equal(weights[1], _numbers(3, seed=1)):
            return tr("the weights have not changed: change them in place, under torch.no_grad().")
        if any(weight.grad is not None and weight.grad.any() for weight in weights):
            return tr("clear each gradient after its update, or the next backward pass adds to it: weight.grad = None.")
    mistakes = (
        (_updated(0.1, 0.1), tr_noop("biases and norms, all with one axis, are not decayed")),
        (_updated(0.0), tr_noop("weight decay is missing: matrices shrink by the factor 1 − rate · decay")),
        (_updated(kind=torch.optim.Adam),
         tr_noop("decay shrinks the weight itself; added to the gradient it is Adam with L2")),
        (_updated(0.0, 0.1), tr_noop("decay matrices, not biases")),
    )  # fmt: skip
    found = torch.cat([weight.detach().flatten() for weight in weights])
    if advice := known_mistake(found, mistakes):
        return advice
    problem = compare(found, _updated(), (), "torch.optim.AdamW")
    if problem is None:
        return None
    return problem + " " + tr("Usual causes: t does not grow, or a moment is not divided by its own 1 − βᵗ.")


def _toy() -> Any:
    toy = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7)).double()
    with torch.no_grad():
        for number, weight in enumerate(toy.parameters()):
            weight.copy_(_numbers(*weight.shape, seed=number))
    return toy


def _learned(
    batches: Tensor,
    shift: int = 1,
    rises: bool = True,
    falls: bool = True,
    rate: float = 0.02,
    warm_up: int = 20,
    clip: float | None = None,
) -> list[float]:
    """Return the losses of the toy, trained with PyTorch's own parts."""
    from math import cos, inf, pi

    toy, losses = _toy(), []
    optimizer = course.AdamW(toy.parameters())
    for t, batch in enumerate(batches, 1):
        inputs, targets = batch[:, : -shift or None], batch[:, shift:]
        loss = functional.cross_entropy(toy(inputs).flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(toy.parameters(), clip or inf)
        late = (1 + cos(pi * (t - warm_up) / (len(batches) - warm_up))) / 2 if falls else 1.0
        optimizer.step(rate * (late if t > warm_up else t / warm_up if rises else 1.0))
        losses.append(loss.item())
    return losses


# Exercise 4a.7: learn
def _check_learn(learn: Any) -> str | None:
    batches = torch.randint(7, (40, 2, 6), generator=torch.Generator().manual_seed(0))

    def losses(settings: dict[str, Any]) -> Tensor:
        toy = _toy()
        optimizer = course.AdamW(toy.parameters())
        return torch.tensor([float(loss) for loss in learn(toy, optimizer, batches, 0.02, **settings)])

    if (got := len(losses({}))) != len(batches):
        return tr("expected {wanted} losses, one a batch, got {got}: yield each.", wanted=len(batches), got=got)

    def trained(settings: dict[str, Any]) -> Tensor:
        return torch.tensor(_learned(batches, **settings))

    mistaken_settings: tuple[tuple[dict[str, Any], str], ...] = (
        ({"shift": 0}, tr_noop("the model read its own targets: inputs are batch[:, :-1], targets batch[:, 1:]")),
        ({"rises": False}, tr_noop("the rate rises for `warm_up` steps: rate · t / warm_up")),
        ({"falls": False}, tr_noop("after the warm-up the rate falls along half a cosine to 0")),
        (
            {"rate": 0.0},
            tr_noop("the weights do not change: loss.backward(), then optimizer.step(rate), for each batch"),
        ),
        ({"warm_up": 20}, tr_noop("the warm-up takes `warm_up` steps, not always 20")),
        ({"clip": None}, tr_noop("with `clip`, shorten longer gradients: nn.utils.clip_grad_norm_")),
    )
    # In the first round, a warm-up of 20 steps and no clipping are right: `compare` looks for mistakes only in a result
    # that is not the right one.
    rounds: tuple[dict[str, Any], ...] = ({}, {"warm_up": 10, "clip": 0.2})
    for settings in rounds:
        mistakes = [(trained({**settings, **mistaken}), advice) for mistaken, advice in mistaken_settings]
        if problem := compare(losses(settings), trained(settings), mistakes, tr_noop("PyTorch's own training")):
            return problem
    return None


# The runs of 4a.9 and the name of what is wrong with each; tests/bench/faults.py trains them.
FAULTS = {"A": "dropout", "B": "leak", "C": "copies", "D": "seen", "E": "rate", "F": "shift"}
CLUES = {
    "dropout": tr_noop("its held-out loss was measured twice, on the same sequences: compare the two numbers."),
    "leak": tr_noop("both losses end far below the source, and its text is noise: what can it not see when it writes?"),
    "copies": tr_noop("its training loss falls below the source, and its held-out loss rises: what did it read?"),
    "seen": tr_noop("both losses fall below the source, and its text is good: which documents does it know?"),
    "rate": tr_noop("its loss stays near the unigram model's, in training, too: what keeps it from learning?"),
    "shift": tr_noop("its loss is nearly 0 after a few steps, and its text repeats one token: what is its target?"),
}


# Exercise 4a.9: the six faults
def _check_faults(answer: Any) -> str | None:
    if not isinstance(answer, dict) or set(answer) != set(FAULTS) or not set(answer.values()) <= set(CLUES):
        names = ", ".join(sorted(CLUES))
        return tr('expected a name for each of A to F, such as {{"A": "leak", …}}; allowed: {names}.', names=names)
    for letter, fault in FAULTS.items():
        if answer[letter] != fault:
            yours, clue = answer[letter], tr(CLUES[fault])
            return tr("run {letter} is not {yours!r}. Look again: {clue}", letter=letter, yours=yours, clue=clue)
    return None


# Exercise 4a.10: log_probability
def _check_log_probability(log_probability: Any) -> str | None:
    def picked(model: Any, ids: Tensor, shift: int = 1) -> Tensor:
        logp: Tensor = model(ids).log_softmax(-1)[:, : -shift or None]
        return logp.gather(-1, ids[:, shift:, None])[..., 0]

    def raw(model: Any, ids: Tensor) -> Tensor:
        logits: Tensor = model(ids[:, :-1])
        return logits.gather(-1, ids[:, 1:, None]).sum((1, 2))

    def right(model: Any, ids: Tensor) -> Tensor:
        logits = model(ids)[:, :-1]
        return -functional.cross_entropy(logits.mT, ids[:, 1:], reduction="none").sum(-1)

    mistakes = (
        (lambda model, ids: picked(model, ids).mean(-1),
         tr_noop("the sum over the tokens, not the mean: a sentence is as probable as all its tokens together")),
        (lambda model, ids: -picked(model, ids).sum(-1),
         tr_noop("the sign: a log-probability is not positive, and the better sentence has the higher one")),
        (lambda model, ids: picked(model, ids).sum(), tr_noop("one number for each row, not one for all")),
        (lambda model, ids: picked(model, ids), tr_noop("one number for each row: the sum over its tokens")),
        (lambda model, ids: picked(model, ids, 0).sum(-1),
         tr_noop("the logits at a position are for the next token: ids[:, :-1] are read, ids[:, 1:] are scored")),
        (raw, tr_noop("logits are not yet log-probabilities: log_softmax first")),
        (lambda model, ids: picked(model, ids).exp().prod(-1), tr_noop("the sum of the logarithms, not the product")),
        (lambda model, ids: picked(model, ids).exp().sum(-1), tr_noop("the logarithm is missing: log_softmax")),
    )  # fmt: skip
    toy = _toy()
    calls = [((toy, torch.tensor(rows)), right) for rows in ([[2, 4, 1, 0, 6], [2, 3, 3, 5, 1]], [[2, 6]])]
    return judge_tensors(log_probability, calls, mistakes, "cross_entropy")


# Exercise 4a.11: top_p
def _check_top_p(top_p: Any) -> str | None:
    from transformers import TopPLogitsWarper

    chances = torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.05, 0.05, 0.86, 0.04]], dtype=torch.float64)

    def right(chances: Tensor, p: float) -> Tensor:
        probabilities: Tensor = TopPLogitsWarper(p)(None, chances.log()).softmax(-1)
        return probabilities

    def short(chances: Tensor, p: float) -> Tensor:
        """Return the entries before the one with which the sum reaches p."""
        ordered, indices = chances.sort(descending=True, dim=-1)
        return torch.zeros_like(chances).scatter(-1, indices, ordered.masked_fill(ordered.cumsum(-1) > p, 0))

    mistakes = (
        (lambda chances, p: chances * (right(chances, p) > 0),
         tr_noop("divide by the sum of what is kept, so that the row adds up to 1")),
        (lambda chances, p: short(chances, p) / short(chances, p).sum(-1, keepdim=True),
         tr_noop("keep the entry with which the sum reaches p, too")),
        (short, tr_noop("keep the entry with which the sum reaches p, and divide by the sum of what is kept")),
        (lambda chances, p: right(chances, p).sort(descending=True, dim=-1)[0],
         tr_noop("put the probabilities back to their entries: scatter with the places that sort gave")),
        (lambda chances, p: functional.normalize(chances * (chances >= p), p=1, dim=-1),
         tr_noop("p is compared with the sum of the larger probabilities, not with each one")),
    )  # fmt: skip
    return judge_tensors(top_p, [((chances, 0.7), right), ((chances, 0.8), right)], mistakes, "TopPLogitsWarper")


# The loss depends on the profile's vocabulary and text, so it is compared with that of another rate. On real text the
# losses lie closer together than on the small world.
GAIN, GAIN_ON_REAL_TEXT, STEPS, USUAL = 0.6, 0.08, 60, 3e-3


# A rate is chosen with the seeds of the notebook's `trial` and judged with others: new weights, batches and sequences.
JUDGED_WITH = (2, 3)


@cache
def _loss_of(trial: Any, rate: float) -> float:
    return float(trial(rate, JUDGED_WITH))


# Exercise 4a.12: a learning rate
def _check_rate(answer: Any) -> str | None:
    """Run the notebook's experiment with the learner's rate, and with the usual one to compare."""
    trial, rate = answer
    goal = _loss_of(trial, USUAL) - (GAIN if has_world() else GAIN_ON_REAL_TEXT)
    loss = _loss_of(trial, rate)
    if loss <= goal:
        return None
    # NaN, too
    if not loss <= goal + 3:
        advice = tr("the loss rises, because each update overshoots; try a tenth of the rate")
    else:
        advice = tr("too cautious: try three times as much") if rate < 1e-2 else tr("too high: try half as much")
    return tr("{loss:.2f} nats on held-out text, {goal:.2f} are wanted: {advice}.", loss=loss, goal=goal, advice=advice)


# Nats per byte on the articles that the check holds out.
GOAL = 2.2
BYTE_MODEL = """def byte_model(data):
    model = GPT2(256, 256, hidden=64, layers=2, heads=4, attention=Attention)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.09)
    for _ in learn(model, AdamW(model.parameters()), draw(data, 400), rate=6e-3):
        pass
    return model"""


@cache
def _articles() -> tuple[list[str], list[str]]:
    """Return encyclopedia articles of chapter 1 to train on, about half a million characters, and 40 others."""
    from course_lib.corpus import products as corpus
    from course_lib.documents import read_texts

    texts = list(islice(read_texts(corpus.WIKIPEDIA.path() / corpus.DOCUMENTS), 2000))
    return [text for i, text in enumerate(texts) if i % 10], texts[::10][:40]


def articles() -> list[str]:
    """Return encyclopedia articles to train on; the check of exercise 13 measures on others."""
    return _articles()[0]


@torch.no_grad()
def _byte_loss(model: Any) -> float | str:
    """Return the loss of a model on bytes of the held-out articles, or what is wrong with its logits."""
    stream = _bytes(_articles()[1])[: 64 * 97].view(-1, 97)
    logits = model(stream[:, :-1])
    if logits.shape != (wanted := (*stream[:, 1:].shape, 256)):
        return tr("expected logits of the shape {wanted}, got {got}.", wanted=[*wanted], got=[*logits.shape])
    if (logits[:, :8] - model(stream[:, :8])).abs().max() > 1e-3:
        return tr("the model looks ahead: its first logits change with later bytes.")
    return functional.cross_entropy(logits.flatten(0, 1), stream[:, 1:].flatten()).item()


def _bytes(texts: list[str]) -> Tensor:
    return torch.tensor(list("".join(texts).encode()))


# Exercise 4a.13: byte_model
def _check_bytes(byte_model: Any) -> str | None:
    """Let the learner's function train a model, and measure it."""
    loss = _byte_loss(byte_model(_bytes(articles())))
    if isinstance(loss, str):
        return loss
    if loss <= GOAL:
        return None
    if loss > 4:
        advice = tr("that is worse than the frequencies of the bytes; were start weights drawn as in `fresh`?")
    else:
        advice = tr("train for a few hundred steps, at a rate near that of 4a.7")
    return tr(
        "{loss:.2f} nats per byte on new articles, {goal} are wanted: {advice}.", loss=loss, goal=GOAL, advice=advice
    )


CHAPTER = Chapter(
    Exercise(
        "write attend(q, k, v): scores, mask, softmax, and the weighted sum of the values",
        _check_attend,
        (
            "Scores: q @ k.mT, divided by the root of the size of q. Then the mask, then softmax(-1), then @ v.",
            "The mask: torch.ones(seq, seq).triu(1).bool() is true right of the diagonal; masked_fill puts -torch.inf "
            "there.",
        ),
        from_notebook("04_gpt2_by_hand", "attend_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write Attention.forward(x): c_attn, cut into heads, attend, heads side by side, c_proj",
        _check_attention,
        (
            "self.c_attn(x).chunk(3, dim=-1) gives queries, keys and values, each [batch, seq, hidden].",
            "part.view(batch, seq, self.heads, -1).transpose(1, 2) puts the heads before the positions; the same "
            "transpose, then reshape(batch, seq, hidden), puts them back.",
        ),
        from_notebook("04_gpt2_by_hand", "AttentionOurs"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write Block.forward(x): two sums, one with attention and one with the MLP, each behind its norm",
        _check_block,
        ("x = x + what attention makes of ln_1(x).", "Then return x + what the MLP makes of ln_2(x), with the new x."),
        from_notebook("04_gpt2_by_hand", "BlockOurs"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write GPT2.forward(ids, start=0): two embeddings, the blocks, the last norm, the output layer",
        _check_model,
        (
            "self.wte(ids) and self.wpe.weight[start : start + seq] have shapes that can be added.",
            "After all blocks of self.h: self.ln_f(x) @ self.wte.weight.T.",
        ),
        from_notebook("04_gpt2_by_hand", "GPT2Ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write cross_entropy(logits, targets): the mean of −ln p(target)",
        _check_loss,
        (
            "logits.log_softmax(-1) are the log-probabilities of all entries.",
            "gather(-1, targets[..., None]) picks one of them for each position.",
        ),
        from_notebook("04_gpt2_by_hand", "cross_entropy_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write AdamW.step(rate): both moments, both corrections, decay of matrices, the update, the gradient cleared",
        _check_adamw,
        (
            "t grows by 1. Then, for each weight, both moments, as in the first line of the formulas.",
            "The step is first / (1 − β₁ᵗ) / (√(second / (1 − β₂ᵗ)) + 1e-8). A matrix is multiplied by "
            "1 − rate · decay before rate · step is subtracted.",
        ),
        from_notebook("04_gpt2_by_hand", "AdamWOurs"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write learn(model, optimizer, batches, rate, warm_up, clip): for each batch loss, backward and update",
        _check_learn,
        (
            "enumerate(batches, 1) counts t from 1. The model reads batch[:, :-1]; the targets are batch[:, 1:].",
            "The factor of the rate is t / warm_up up to step warm_up, then "
            "(1 + cos(π · (t − warm_up) / (steps − warm_up))) / 2.",
        ),
        from_notebook("04_gpt2_by_hand", "learn_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write attend_stored(q, k, v) for a cache: q holds the last rows of a text, k and v hold all of them",
        _check_cached,
        (
            "With n stored keys, row 0 may read the columns 0 to n.",
            "triu(1 + columns − rows): the diagonal moves to the right by the number of stored keys.",
        ),
        from_notebook("04_gpt2_by_hand", "attend_cached"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "find the fault of each run A to F, by its curve, its two held-out losses and its text",
        _check_faults,
        (
            "First ask of each run: which of its losses end below the source?",
            "Then read the texts of those below the source: a model that is so good should write well.",
        ),
        FAULTS,
        "On new documents no loss stays below the entropy of the source: there, the loss is of something else, or the "
        "model sees what it should predict.",
    ),
    Exercise(
        "write log_probability(model, ids): for each row, the sum of the log-probabilities of all tokens but the first",
        _check_log_probability,
        (
            "As in exercise 5: log_softmax(-1), then gather(-1, targets[..., None]); then a sum in place of the mean.",
            "The model reads ids[:, :-1]; the targets are ids[:, 1:]. gather leaves a last axis of length 1.",
        ),
        from_notebook("04_gpt2_by_hand", "log_probability_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write top_p(chances, p): keep the fewest likeliest entries whose sum reaches p, set the others to 0, and "
        "divide each row by its sum",
        _check_top_p,
        (
            "sort(descending=True) gives the probabilities in order, and their places.",
            "Entry n is kept if the sum of the entries before it is below p: cumsum minus the entry itself.",
            "torch.zeros_like(chances).scatter(-1, places, kept) puts the kept ones back.",
        ),
        from_notebook("04_gpt2_by_hand", "top_p_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        f"find a learning rate with which {STEPS} steps end at least {GAIN:g} nats lower than with {USUAL:g} "
        f"({GAIN_ON_REAL_TEXT} nats on real text)",
        _check_rate,
        (
            "Change the learning rate by a factor of three at a time and note each loss.",
            "The best rate for few steps is higher than for many: look between 6e-3 and 3e-2.",
        ),
        Code("(trial, 0.012)"),
        "Too low wastes steps, too high overshoots; the best rate also depends on the number of steps and the batch.",
    ),
    Exercise(
        f"write byte_model(data): a GPT-2 trained on bytes, with at most {GOAL} nats per byte on new articles",
        _check_bytes,
        (
            "As in 4a.7, with 256 for V: GPT2(256, 256, hidden=64, layers=2, heads=4, attention=Attention), start "
            "weights as in `fresh`, then draw and learn.",
            "400 steps at a rate of 6e-3 are enough.",
        ),
        Code(BYTE_MODEL),
        "Nothing in the classes depends on the tokens. Two of the three bytes of a kana are nearly certain; the third "
        "and the bytes of kanji are not.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

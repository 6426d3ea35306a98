"""Exercises for chapter 6: a prefix in the cache, labels, exact answers, LoRA, a blind reading, two trainings.

The learner's functions are compared with the library's cache (prefix_cache.py) and with peft.
"""

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Code, Exercise, from_notebook
from course_lib.exercises.answers import compare
from course_lib.language.words import tr, tr_noop
from course_lib.prefix.writers import key

# Exercise 6.6: how many lengths to try, how many times the shortest the longest is at least, the steps of a training,
# its seeds, and the pairs that choose the best length.
LENGTHS, RANGE, STEPS, SEEDS, CHOOSING = 3, 4, 200, (1, 2, 3), 50
# Exercise 6.5: texts of which the writer is to be found.
READ = 8
# Exercise 6.7: share of exact answers that is wanted.
POLITE = 0.9


def _behind(model: Any, rows: Any, ids: Any, first: int) -> Any:
    """Return the logits for `ids` behind a prefix by the library, with tokens at the positions from `first`."""
    import torch

    from course_lib.generation.prefix_cache import Shape, past

    position_ids = torch.arange(first, first + ids.shape[1], device=ids.device)[None]
    cached, _ = past([rows] * len(ids), Shape.of(model.config), rows.dtype, rows.device)
    return model(ids, past_key_values=cached, position_ids=position_ids).logits


# Exercise 6.1: with_prefix
def _check_prefix(answer: Any) -> str | None:
    """Compare with the library on a GPT-2 with random weights, and name the usual mistakes by their logits."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = GPT2Config(n_embd=8, n_layer=3, n_head=2, vocab_size=11, n_positions=16, initializer_range=0.8)
        model = GPT2LMHeadModel(sizes).eval().requires_grad_(False)
        rows, ids = torch.randn(4, 3 * 2 * 8, requires_grad=True), torch.randint(11, (2, 5))
    right, logits = _behind(model, rows, ids, 4), answer(model, rows, ids)
    table = rows.view(4, 3, 2, 8)
    layers_last = rows.view(4, 2, 3, 8).transpose(1, 2).reshape(4, -1)
    sizes_first = rows.view(4, 3, 2, 4, 2).transpose(3, 4).reshape(4, -1)
    mistakes = (
        (model(ids).logits, tr_noop("the prefix has no effect: give the cache to the model, as past_key_values")),
        (_behind(model, rows, ids, 0), tr_noop("the texts begin at position 0; the prefix takes the first positions")),
        (_behind(model, table.flip(2).reshape(4, -1), ids, 4), tr_noop("keys and values have changed places")),
        (_behind(model, layers_last, ids, 4), tr_noop("a row has its layers first, and a key and a value in each")),
        (_behind(model, sizes_first, ids, 4), tr_noop("a key is head by head: view(…, heads, head size)")),
    )
    if problem := compare(logits, right, mistakes, tr_noop("the library")):
        return problem
    if not logits.requires_grad:
        return tr("no gradient reaches the rows: compute with them as they are, without detach, .data or no_grad.")
    return None


# Exercise 6.3: exact
def _check_exact(answer: Any) -> str | None:
    """Judge three pairs with the same labels: a right answer, one with a wrong token, one that does not stop."""
    import torch

    cases = (
        ([0, 5, 1, 2, 0], True, tr_noop("a label is the next token already, and where it is -100 any token may be")),
        ([0, 5, 3, 2, 0], False, tr_noop("one wrong token makes the whole answer wrong")),
        ([0, 5, 1, 4, 0], False, tr_noop("the end of the text belongs to the answer: it must stop there")),
    )
    likely = torch.tensor([ids for ids, _, _ in cases])
    labels = torch.tensor([-100, 5, 1, 2, -100]).expand(len(cases), -1)
    found = answer(torch.nn.functional.one_hot(likely, 7) - 3.0, labels)
    if getattr(found, "ndim", 1) != 1 or len(found) != len(cases):
        return tr("expected a list with one answer for each of {number} pairs.", number=len(cases))
    for given, (_, wanted, advice) in zip(found, cases, strict=True):
        if bool(given) != wanted:
            return tr("{advice}.", advice=tr(advice))
    return None


# Exercise 6.4: lora
def _check_lora(answer: Any) -> str | None:
    """Compare with peft on a linear layer, with the same A and B."""
    import torch
    from peft import LoraConfig, inject_adapter_in_model
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer, peer, x, other = nn.Linear(6, 10), nn.Linear(6, 10), torch.randn(4, 6), torch.randn(10, 2)
    peer.load_state_dict(layer.state_dict())
    start, weight = layer(x).detach(), layer.weight.detach().clone()
    matrices = answer(layer, 6, 10, 2)
    shapes = [list(getattr(each, "shape", ())) for each in matrices]
    if shapes != [[2, 6], [10, 2]]:
        return tr("return [A, B], of the shapes [rank, inputs] and [outputs, rank]; yours: {shapes}.", shapes=shapes)
    A, B = matrices
    if not (A.requires_grad and B.requires_grad and A.is_leaf and B.is_leaf):
        return tr("A and B are to be trained: make each an nn.Parameter.")
    if not torch.allclose(layer(x), start, atol=1e-6):
        return tr("the layer must start as it was: B starts at 0.")
    if not A.any():
        return tr("with A and B both 0, no gradient reaches either: A starts at random.")
    adapted = inject_adapter_in_model(
        LoraConfig(r=2, lora_alpha=4, target_modules=["layer"]), nn.ModuleDict({"layer": peer})
    )
    with torch.no_grad():
        B.copy_(other)
        for name, matrix in (("A", A), ("B", B)):
            adapted.get_parameter(f"layer.lora_{name}.default.weight").copy_(matrix)
    found, right = layer(x), adapted.get_submodule("layer")(x)
    if not torch.equal(layer.weight, weight):
        return tr("layer.weight has changed; it stays frozen, and A and B come on top.")
    update = right - start
    mistakes = (
        (start, tr_noop("layer(x) does not use A and B: replace layer.forward")),
        (start + update / 2, tr_noop("the factor 2 is missing")),
        (update, tr_noop("the update replaces the old output; it is added to it")),
    )
    return compare(found, right, mistakes, "peft")


# Exercise 6.5: who wrote which text
def _check_guesses(answer: Any) -> str | None:
    from course_lib.prefix.writers import WRITERS

    letters, right = [name[0] for name in WRITERS], key()
    if len(answer) != len(right) or not set(answer) <= set(letters):
        return tr("hand in {number} letters, each {first} or {second}.",
                  number=len(right), first=letters[0], second=letters[1])  # fmt: skip
    if (hits := sum(map(operator.eq, answer, right))) < READ:
        return tr("{hits} of {number} are as the key has them, {wanted} are wanted; read the endings of the sentences.",
                  hits=hits, number=len(right), wanted=READ)  # fmt: skip
    return None


@cache
def _shares(length: int) -> list[float]:
    """Train as the notebook's cell does; return for each held-out pair the share of the seeds with a right answer."""
    from course_lib.models import frozen_base
    from course_lib.prefix import products
    from course_lib.prefix.run import PrefixRun

    answers, rate = [], products.quick().rates["embedding"][0]
    for seed in SEEDS:
        chosen = (
            f"engine.max_steps={STEPS}",
            f"model.length={length}",
            f"engine.seed={seed}",
            f"optimizer.lr.max={rate}",
        )
        run = PrefixRun(products.run_settings("plain", "engine.num_train_epochs=null", *chosen))
        _, held_out = run.rows()
        examples = [row.example() for row in held_out]
        answers.append(_right(frozen_base.load(run.base), _trained_rows(run), examples))
    return [mean(of_pair) for of_pair in zip(*answers, strict=True)]


def _trained_rows(run: Any) -> Any:
    """Train a run of a prefix in a temporary folder, and return the rows [P, width]."""
    from course_lib.prefix.config import FILE
    from course_lib.prefix.files import read
    from course_lib.training.loop import train

    settings = run.settings
    with TemporaryDirectory() as name:
        folder = Path(name)
        engine = replace(settings.engine, output_dir=folder / "run", eval_freq=0, tracking=())
        run = type(run)(replace(settings, engine=engine, launch=replace(settings.launch, ranks=1)))
        train(run, on_message=lambda _: None)
        run.export(folder / FILE)
        return read(folder / FILE).values


def _right(model: Any, rows: Any, pairs: Sequence[Any]) -> list[bool]:
    """Return for each pair whether the frozen model answers it exactly behind a prefix with these rows."""
    from course_lib.checkpoints.compute import device
    from course_lib.prefix.measure import right

    on = device("auto")
    model, rows = model.to(on), rows.to(on, model.dtype)
    return right(lambda ids: _behind(model, rows, ids, len(rows)), pairs, on)


# Exercise 6.6: the shortest length
def _check_length(answer: Any) -> str | None:
    """Train each tried length; some held-out pairs choose the best, the others judge the learner's against it."""
    from course_lib.evaluation.bootstrap import difference

    chosen, tried = answer
    if (number := len(set(tried))) < LENGTHS:
        return tr("you tried {number} lengths; at least {lengths}, please.", number=number, lengths=LENGTHS)
    if max(tried) < RANGE * min(tried):
        return tr("you tried {tried}; the longest is to be {times} times the shortest or more.",
                  tried=sorted(set(tried)), times=RANGE)  # fmt: skip
    if chosen not in tried:
        return tr("{chosen} is not among the lengths that you tried.", chosen=chosen)
    measured = {length: _shares(length) for length in sorted(set(tried))}
    best = max(measured, key=lambda length: (mean(measured[length][:CHOOSING]), -length))
    shares = {length: values[CHOOSING:] for length, values in measured.items()}
    # Lengths whose interval of the difference from the best reaches 0.
    not_worse = []
    for length in shares:
        _, _, high = difference(shares[length], shares[best])
        if high >= 0:
            not_worse.append(length)
    shortest = min(not_worse)
    found = {"share": mean(shares[chosen]), "best": mean(shares[best]), "length": best, "shortest": shortest}
    if chosen not in not_worse:
        return tr("{share:.0%} are right, with {length} positions {best:.0%}; the interval excludes 0.", **found)
    if chosen > shortest:
        return tr("{shortest} positions are shorter, and the pairs do not tell them from the best.", **found)
    return None


def _polite(rows: Sequence[Sequence[float]]) -> float:
    """Return the share of held-out plain sentences that a prefix makes polite."""
    import torch

    from course_lib.models import frozen_base
    from course_lib.prefix import data, products, samples
    from course_lib.pretrain import text_codec

    base = products.base().path() / products.MODEL
    codec, model = text_codec.load(base), frozen_base.load(base)
    held_out = data.load(products.task_settings()["plain"].data, codec).held_out
    swapped = [data.Sample(pair.target, pair.prompt, pair.line) for pair in held_out]
    examples = [row.example() for row in samples.rows(swapped, None, True, codec.tokenizer.eos_token_id)]
    answers = _right(model, torch.tensor(rows), examples)
    return sum(answers) / len(answers)


# Exercise 6.7: a polite prefix
def _check_polite(answer: Any) -> str | None:
    share = _polite(answer)
    if share >= POLITE:
        return None
    found = {"share": share, "wanted": POLITE}
    return tr("{share:.0%} of the held-out sentences become polite, {wanted:.0%} are wanted.", **found)


# Exercise 6.2: example
EXAMPLE_CASES = (
    (([5], [8], 2), ([5, 8], [8, 2]), "the label at a position is the next token; the model does not read the end"),
    (([5, 6, 7], [8, 9], 2), ([5, 6, 7, 8, 9], [-100, -100, 8, 9, 2]),
     "at 7 the model predicts the target; what it predicts before is not learned"),
)  # fmt: skip

POLITE_ROWS = """(
    swapped := [example(pair.target, pair.prompt, end) for pair in plain.train],
    rows := cache_values(model, 20).requires_grad_(),
    learn(partial(with_prefix, model, rows), [rows], batches(swapped, 400, 1), rate),
)[1]"""
CHAPTER = Chapter(
    Exercise(
        "write with_prefix(model, rows, ids): the logits for the texts behind a prefix, whose rows are keys and values",
        _check_prefix,
        (
            "rows.view(length, layers, 2, heads, -1).permute(1, 2, 3, 0, 4) has for each layer a key and a value, each "
            "[heads, length, head size]. The cache wants a batch in front: expand copies nothing.",
            "cache = DynamicCache(); cache.update(keys, values, layer) for each layer; then "
            "model(ids, past_key_values=cache, position_ids=…).logits, with positions from the number of rows on.",
        ),
        from_notebook("06_prefix_tuning", "with_prefix_ours"),
        f"{SEE_FOLDED_CELL} A prefix is keys and values, and the tokens' positions begin behind it.",
    ),
    Exercise(
        "write example(prompt, target, end): what the model reads, and for each position the token that "
        "it must predict there, which is the next one (-100 where nothing is learned)",
        EXAMPLE_CASES,
        (
            "The whole text is prompt + target + [end]. The model reads all tokens but the last; "
            "the label at a position is the next token.",
            "The first learned label is at the last token of the prompt, after len(prompt) - 1 times -100.",
        ),
        from_notebook("06_prefix_tuning", "example_ours"),
        "The text has exactly one end token. A tokenizer that adds an end token too would double it, as in the "
        "published training script.",
    ),
    Exercise(
        "write exact(logits, labels): for each pair of the batch, whether greedy decoding gives its whole target",
        _check_exact,
        (
            "logits.argmax(-1) is the most probable token at each position. Where does it have to be the label?",
            "A position is as wanted if the two are equal, or (|) if the label is -100; .all(-1) asks this of all "
            "positions of a pair.",
        ),
        from_notebook("06_prefix_tuning", "exact_ours"),
        f"{SEE_FOLDED_CELL} One forward pass is enough, because the right tokens so far are what greedy decoding would "
        "have read.",
    ),
    Exercise(
        "write lora(layer, inputs, outputs, rank): the layer's output gets 2·B·A·x on top; return [A, B]",
        _check_lora,
        (
            "A = nn.Parameter(…) of the shape [rank, inputs], random; B = nn.Parameter(torch.zeros(outputs, rank)).",
            "old = layer.forward; layer.forward = lambda x: old(x) + 2 * (x @ A.T @ B.T)",
        ),
        from_notebook("06_prefix_tuning", "lora_ours"),
        f"{SEE_FOLDED_CELL} At the start B is 0: the layer is unchanged, and the first gradient reaches B alone.",
    ),
    Exercise(
        "who wrote each of the ten texts? A text of ten letters: d for dowa, t for tantei",
        _check_guesses,
        (
            "Who reads to children speaks to them politely: look at the end of each sentence.",
            "ました and です: dowa. た, だ and である in the narration: tantei.",
        ),
        key(),
        "The endings tell more than the plots: two of five of tantei's texts name a crime.",
    ),
    Exercise(
        f"choose the shortest length that {STEPS} steps do not make worse than the best, from at least {LENGTHS} that "
        "you tried: (length, [tried lengths])",
        _check_length,
        (
            "Try short and long prefixes: 1, 2, 5 and 20 positions, each with seeds 1, 2 and 3.",
            "difference(shares, best), both of the judging pairs alone, gives the mean difference and its interval. "
            "Worse is a length whose interval lies wholly below 0.",
        ),
        (5, [1, 2, 5, 20]),
        "1, 2, 5 and 20 positions have 45, 65, 89 and 74 % of the judging answers exact: 5 are the best on this base. "
        "Each position takes room in every request. After more steps the lengths differ less.",
    ),
    Exercise(
        "train a prefix that makes plain sentences polite, and hand in its rows",
        _check_polite,
        (
            "Swap the two parts: example(pair.target, pair.prompt, end) for each pair of plain.train.",
            "New rows, batches(swapped, 400, 1) and learn(…) as in 6.4, at the same rate; hand in the rows themselves.",
        ),
        Code(POLITE_ROWS),
        "The same base, the same loop: only the pairs are others.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

"""Exercises for the second half of chapter 4: ZeRO-2, other texts, early sending, stage 3."""

from copy import deepcopy
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

from course_lib.corpus.products import has_world
from course_lib.exercises import SEE_FOLDED_CELL, Chapter, Exercise, from_notebook
from course_lib.exercises.answers import judge_tensors
from course_lib.exercises.ranks import Ranks
from course_lib.language.words import tr, tr_noop

# Exercise 4b.3: bits per character of a text that the model knows, and the shortest such text.
KNOWN, SHORTEST = 1.0, 60
# Exercise 4b.4: the lengths of the parameters, whose borders are not those of the shards of two or three ranks.
LENGTHS = (5, 12, 1)


# Exercise 4b.1: reduce_scatter
def _check_reduce_scatter(answer: Any) -> str | None:
    """Compare with the shards of the mean over two and over three ranks."""
    import torch

    two = torch.tensor([[0.0, 1.0, 4.0, 9.0], [16.0, 25.0, 36.0, 49.0]])
    three = torch.tensor([[0.0, 1.0, 4.0], [9.0, 16.0, 25.0], [36.0, 49.0, 64.0]])
    cases = (
        ((two, 0), torch.tensor([8.0, 13.0])),
        ((two, 1), torch.tensor([20.0, 29.0])),
        ((three, 0), torch.tensor([15.0])),
        ((three, 1), torch.tensor([22.0])),
        ((three, 2), torch.tensor([31.0])),
    )
    mistakes = (
        (lambda gradients, rank: gradients.sum(0).chunk(len(gradients))[rank],
         tr_noop("this is the sum of the ranks' gradients; a step needs their mean")),
        (lambda gradients, rank: gradients[rank].chunk(len(gradients))[rank],
         tr_noop("this is one rank's own gradient; all ranks have to count")),
        (lambda gradients, rank: gradients.mean(0),
         tr_noop("this is the whole mean, an all-reduce; keep the part of this rank")),
        (lambda gradients, rank: gradients.mean(0)[rank :: len(gradients)],
         tr_noop("a shard is one contiguous part of the gradient")),
        (lambda gradients, rank: gradients.mean(1), tr_noop("the mean is over the ranks, dimension 0")),
    )  # fmt: skip
    return judge_tensors(answer, cases, mistakes, tr_noop("the mean over the ranks"))


# Exercise 4b.2: zero2_step
def _check_step(answer: Any) -> str | None:
    """Run three steps on two and on three ranks, which are threads, and compare with AdamW in one process."""
    import torch

    for ranks in (2, 3):
        random, size = torch.Generator().manual_seed(ranks), 4 * ranks
        start = torch.randn(size, generator=random)
        whole, group = torch.nn.Parameter(start.clone()), Ranks(ranks)
        peer, weights = torch.optim.AdamW([whole], 0.1), [start.clone() for _ in range(ranks)]
        optimizers = [torch.optim.AdamW([torch.nn.Parameter(part.clone())], 0.1) for part in start.chunk(ranks)]
        # The second gradient is shorter than the limit of 1, so it stays as it is.
        for number, scale in enumerate((3.0, 0.05, 3.0), 1):
            gradients = torch.randn(ranks, size, generator=random) * scale
            whole.grad = gradients.mean(0)
            torch.nn.utils.clip_grad_norm_([whole], 1.0)
            peer.step()
            group.run(partial(_step_of_rank, answer, weights, gradients, optimizers, group))
            operations = (
                ("reduce_scatter", tr_noop("shard.grad is the mean over all ranks: call comm.reduce_scatter")),
                ("all_sum", tr_noop("clip by the norm of the whole gradient: comm.all_sum adds what every rank has")),
                ("all_gather", tr_noop("the other ranks' shards do not arrive: call comm.all_gather")),
            )
            for operation, advice in operations:
                if operation not in group.called:
                    return tr("{advice}.", advice=tr(advice))
            if all(torch.equal(each, start) for each in weights):
                return tr("the weights stay as they were: change them in place with weights.copy_(…).")
            gap = max((each - whole.detach()).abs().max().item() for each in weights)
            if gap > 1e-5:
                # The first step of AdamW does not depend on the scale of the gradient.
                if number == 1:
                    advice = tr("shard.grad is what comm.reduce_scatter returns, clipped; then comes the step")
                else:
                    advice = tr("clip by the root of all squares, added over the ranks, and never by a factor above 1")
                found = tr("after step {number} of {ranks} ranks", number=number, ranks=ranks)
                return tr("{found}, the weights differ by {gap:.3f} from AdamW in one process: {advice}.",
                          found=found, gap=gap, advice=advice)  # fmt: skip
    return None


def _step_of_rank(answer: Any, weights: Any, gradients: Any, optimizers: Any, group: Ranks, rank: int) -> None:
    """Call the learner's function on one rank."""
    import torch

    with torch.no_grad():
        shard = optimizers[rank].param_groups[0]["params"][0]
        answer(weights[rank], gradients[rank].clone(), shard, optimizers[rank], group.comm(rank), 1.0)


@cache
def _bits(text: str) -> tuple[float, float]:
    """Return the bits per character of a text under the profile's GPT-2, and by guessing among its tokens."""
    from math import log2

    from course_lib.evaluation.bits import bits
    from course_lib.evaluation.causal import FolderScorer
    from course_lib.generation.generator import Generator
    from course_lib.pretrain import products, text_codec

    generator = Generator(products.GPT2.path() / "model", text_codec.load)
    row = bits(FolderScorer(generator), [text])
    return row.bits_per_character, row.tokens * log2(generator.model.config.vocab_size) / row.characters


@cache
def _training_text() -> str:
    """Return the world's documents."""
    from course_lib.corpus import products
    from course_lib.documents import read_texts

    return "\n".join(read_texts(products.WORLD.path() / products.DOCUMENTS)) if has_world() else ""


# Exercise 4b.3: a text that GPT-2 knows, and one that it does not
def _check_texts(answer: Any) -> str | None:
    """Measure both texts with the model."""
    lost, known = answer
    cost, guessing = _bits(lost)
    if cost <= guessing:
        return tr("the first text costs {cost:.2f} bits per character, guessing {guessing:.2f}: take a text that is "
                  "less like the training text.", cost=cost, guessing=guessing)  # fmt: skip
    if len(known) < SHORTEST:
        return tr(
            "the second text has {size} characters, at least {least} are wanted.", size=len(known), least=SHORTEST
        )
    most = len(known) * 9 // 10
    if any(known[at : at + most] in _training_text() for at in range(len(known) - most + 1)):
        return tr("nine tenths of the second text or more are copied from the training text in one piece.")
    cost, guessing = _bits(known)
    limit = KNOWN if has_world() else guessing / 2
    if cost <= limit:
        return None
    return tr("the second text costs {cost:.2f} bits per character, at most {limit:.2f} are wanted: keep to the "
              "world's sentences, and to facts that agree.", cost=cost, limit=limit)  # fmt: skip


# Exercise 4b.4: early
def _check_early(answer: Any) -> str | None:
    """Run two backward passes on ranks that are threads, with buckets of one number, of some and of all."""
    import torch

    size = sum(LENGTHS)
    for ranks, bucket in ((2, 1), (2, 8), (3, 8), (2, size)):
        group, random = Ranks(ranks), torch.Generator().manual_seed(ranks)
        parameters = [[torch.nn.Parameter(torch.ones(n)) for n in LENGTHS] for _ in range(ranks)]
        senders = [answer(of_rank, group.dist(rank), bucket) for rank, of_rank in enumerate(parameters)]
        if not all(map(callable, senders)):
            return tr("early returns a function: reduce_scatter(gradient).")
        name = tr("with {ranks} ranks and a bucket of {bucket}", ranks=ranks, bucket=bucket)
        for number in (1, 2):
            gradients, means = torch.randn(ranks, size, generator=random), [torch.empty(0)] * ranks
            group.sent.clear()
            group.run(partial(_backward, parameters, gradients))
            early = sum(group.sent)
            if any(each.grad is not None for of_rank in parameters for each in of_rank):
                return tr("a gradient stays after the backward pass: set parameter.grad to None when it is taken.")
            group.run(partial(_receive, senders, means))
            if bucket == 1 and early < size:
                return tr("{name}, only {early} of {size} numbers leave during the backward pass: send in the hook.",
                          name=name, early=early, size=size)  # fmt: skip
            if bucket == size and len(group.sent) > ranks:
                return tr("{name}, {number} messages are sent, one to each owner is enough: wait until `bucket` "
                          "numbers are complete.", name=name, number=len(group.sent))  # fmt: skip
            for rank, right in enumerate(gradients.mean(0).chunk(ranks)):
                alike = means[rank].shape == right.shape
                if alike and torch.allclose(means[rank], right, atol=1e-6):
                    continue
                if alike and torch.allclose(means[rank], right * ranks, atol=1e-6):
                    return tr("{name}, this is the sum of the ranks' gradients; a step needs their mean.", name=name)
                wanted, found = ([round(value, 3) for value in each.tolist()] for each in (right, means[rank]))
                values = tr("expected {right}, got {result}", right=wanted, result=found)
                return tr("{name}, for rank {rank} in backward pass {number}, {values}.",
                          name=name, rank=rank, number=number, values=values)  # fmt: skip
    return None


def _backward(parameters: Any, gradients: Any, rank: int) -> None:
    """Give the parameters of a rank its gradients by a backward pass, whose hooks run in this thread."""
    parts = gradients[rank].split(list(LENGTHS))
    sum((each * part).sum() for each, part in zip(parameters[rank], parts, strict=True)).backward()


def _receive(senders: Any, means: list[Any], rank: int) -> None:
    """Call the learner's reduce_scatter on one rank."""
    means[rank] = senders[rank](None).clone()


def _tied_model() -> Any:
    """Return a model whose output layer shares the embedding's weights, of sizes that two and three do not divide."""
    from collections import OrderedDict

    from torch import nn

    parts = {"embedding": nn.Embedding(7, 5), "norm": nn.LayerNorm(5), "inner": nn.Linear(5, 5), "act": nn.GELU(),
             "output": nn.Linear(5, 7, bias=False)}  # fmt: skip
    model = nn.Sequential(OrderedDict(parts))
    model.output.weight = model.embedding.weight  # type: ignore[union-attr]
    return model


# Exercise 4b.5: stage3
def _check_stage3(answer: Any) -> str | None:
    """Train a model whose weights lie in shards for three steps, and compare it with AdamW in one process."""
    import torch

    wanted = SimpleNamespace(beta1=0.9, beta2=0.95, grad_clip=1.0)
    for ranks in (2, 3):
        group, random = Ranks(ranks), torch.Generator().manual_seed(ranks)
        torch.manual_seed(ranks)
        whole = _tied_model()
        models, updates = [deepcopy(whole) for _ in range(ranks)], [None] * ranks
        peer = torch.optim.AdamW(whole.parameters(), 0.1, (0.9, 0.95), weight_decay=0.0)
        group.run(partial(_shard, answer, models, group, wanted, updates))
        name = tr("with {ranks} ranks", ranks=ranks)
        most = sum(-(-each.numel() // ranks) for each in whole.parameters())
        numbers = sum(each.numel() for each in models[0].parameters())
        if numbers > most:
            return tr("{name}, rank 0 still holds {held} numbers; its shards have {most}.",
                      name=name, held=numbers, most=most)  # fmt: skip
        ids = torch.randint(7, (ranks, 4), generator=random)
        if _largest_gap(models, whole, ids[0], group) > 1e-5:
            return tr("{name}, the model computes something else than before: gather whole weights, in their shape.",
                      name=name)  # fmt: skip
        # In the second step the gradient is shorter than the limit of 1, so it stays as it is.
        for number, scale in enumerate((30.0, 0.05, 30.0), 1):
            ids = torch.randint(7, (ranks, 4), generator=random)
            (sum(whole(of_rank).square().mean() for of_rank in ids) * scale / ranks).backward()
            torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
            peer.step()
            peer.zero_grad()
            group.run(partial(_train, models, updates, ids, scale))
            gap = _largest_gap(models, whole, ids[0], group)
            if gap > 1e-3:
                return tr("{name}, after update {number} the results differ by {gap:.3f} from AdamW in one process: a "
                          "gather's way back is comm.reduce_scatter; clip by the norm over all ranks, never by a "
                          "factor above 1; clear the gradients.", name=name, number=number, gap=gap)  # fmt: skip
    return None


def _shard(answer: Any, models: Any, group: Ranks, wanted: Any, updates: list[Any], rank: int) -> None:
    """Call the learner's function on one rank."""
    updates[rank], _ = answer(models[rank], group.comm(rank), wanted)


def _train(models: Any, updates: list[Any], ids: Any, scale: float, rank: int) -> None:
    """Run a step of one rank, as the notebook's processes do."""
    import torch

    (models[rank](ids[rank]).square().mean() * scale).backward()
    with torch.no_grad():
        updates[rank](0.1)


def _largest_gap(models: Any, whole: Any, ids: Any, group: Ranks) -> float:
    """Return the largest difference of the results of the ranks' models from those of the whole model."""
    import torch

    results = [torch.empty(0)] * group.ranks
    with torch.no_grad():
        group.run(partial(_compute, models, ids, results))
        expected = whole(ids)
    return float(max((each - expected).abs().max().item() for each in results))


def _compute(models: Any, ids: Any, results: list[Any], rank: int) -> None:
    """Keep the results of one rank's model."""
    results[rank] = models[rank](ids).detach()


CHAPTER = Chapter(
    Exercise(
        "write reduce_scatter(gradients, rank): this rank's shard of the mean gradient",
        _check_reduce_scatter,
        (
            "First the mean over the ranks, then one of as many equal parts as there are ranks.",
            "gradients.mean(0) is the mean; .chunk(n) cuts a tensor into n parts.",
        ),
        from_notebook("04_gpt2_zero2_pretraining", "reduce_scatter_ours"),
        SEE_FOLDED_CELL,
    ),
    Exercise(
        "write zero2_step(weights, gradient, shard, optimizer, comm, clip): one update by ZeRO-2 on this rank",
        _check_step,
        (
            "In this order: reduce-scatter into shard.grad, clip, step, all-gather into weights.",
            "The norm of the whole gradient is the root of comm.all_sum(shard.grad.square().sum()).",
            "Clipping multiplies shard.grad by clip / norm, but only if that is below 1.",
        ),
        from_notebook("04_gpt2_zero2_pretraining", "zero2_step_ours"),
        f"{SEE_FOLDED_CELL} Only one number per rank travels for the norm.",
    ),
    Exercise(
        "give two texts: one for which GPT-2 needs more bits than guessing, and one of your own that it knows",
        _check_texts,
        (
            "Take a sentence from a newspaper, and write a weather report in the words of 4b.7.",
            "Copy a text of 4b.7 and change a name or a number wherever it stands.",
        ),
        (
            "量子計算機の研究に、政府は来年度から十億円の補助金を出す方針を固めた。",
            "大学のグラウンドで、福岡と神戸がホッケーの試合をしました。3対1で、福岡が勝利をおさめました。"
            "福岡の渡辺選手が、大事なゴールを決めました。福岡の次の試合は、来週行われます。",
        ),
        "Guessing is wrong in a way that costs the same everywhere. A trained model is sure, and pays for being sure "
        "of the wrong thing: outside its training text it can be worse than no model.",
    ),
    Exercise(
        "write early(parameters, dist, bucket): hooks that send gradients; it returns reduce_scatter(gradient)",
        _check_early,
        (
            "Three inner functions: the hook collects and frees gradients, send starts the reductions, receive waits "
            "for them. reduce_scatter sends what is left, receives, and returns the shard.",
            "A hook for each parameter: functools.partial(hook, begin), where begin counts the numbers before it.",
            "Owner r has the numbers from r · size to (r + 1) · size; subtract begin to see them from a gradient.",
            "Wait for what is on its way before you send the next bucket, and only the owner copies the sum, divided "
            "by the ranks, into its shard.",
        ),
        from_notebook("04_gpt2_zero2_pretraining", "early_ours"),
        f"{SEE_FOLDED_CELL} Stage 2 holds a bucket, what is on its way and its shard, never the whole gradient.",
    ),
    Exercise(
        "write stage3(model, comm, wanted): shards for parameters; it returns update(rate) and its optimizer",
        _check_stage3,
        (
            "A gather is a torch.autograd.Function: forward is comm.all_gather, backward is comm.reduce_scatter.",
            "A part for register_parametrization is a module: its forward(shard) gathers, cuts off the padding, and "
            "gives the shape back. Register it for all modules first; then set weight.data of each parameter to its "
            "shard, so a parameter of two modules is cut once.",
            "Pad with -n % comm.ranks zeros. The update clips as exercise 2 does, over all shards, and ends with "
            "zero_grad().",
        ),
        from_notebook("04_gpt2_zero2_pretraining", "stage3_ours"),
        f"{SEE_FOLDED_CELL} A weight travels three times a step: gathered forward and "
        "backward, its gradient scattered. Stage 2 moves two thirds of that.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution

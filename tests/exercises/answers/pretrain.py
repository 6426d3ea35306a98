"""Other right answers, and wrong ones, to the exercises of chapter 4's second half."""

from functools import partial
from typing import Any

import torch

from tests.exercises.answers.folded import Folded


def reduce_scatter(gradients: Any, rank: int) -> Any:
    size = gradients.shape[1] // len(gradients)
    return sum(gradients)[rank * size : (rank + 1) * size] / len(gradients)


FOLDED = Folded("04_gpt2_zero2_pretraining", torch=torch)
NAMES, changed = FOLDED.names, FOLDED.changed
mistaken, unsharded = partial(changed, "zero2_step_ours"), partial(changed, "stage3_ours")
NORM = "comm.all_sum(shard.grad.square().sum()).sqrt()"


def unscattered(weights: Any, gradient: Any, shard: Any, optimizer: Any, comm: Any, clip: float) -> None:
    shard.grad = gradient[: len(shard)]


def early(parameters: Any, dist: Any, bucket: int, **wrong: Any) -> Any:
    """A reduce-scatter whose gradients leave early, number by number, with one mistake where `wrong` names one."""
    ranks, rank, begin = dist.get_world_size(), dist.get_rank(), 0
    complete, flying = list[Any](), list[Any]()
    size = sum(each.numel() for each in parameters) // ranks
    mean = torch.zeros(size)

    def hook(begin: int, parameter: Any) -> None:
        complete.extend(enumerate(parameter.grad.tolist(), begin))
        if "keeps" not in wrong:
            parameter.grad = None
        if "late" not in wrong and len(complete) >= (1 if "eager" in wrong else bucket):
            send()

    def send() -> None:
        for owner in range(ranks):
            of_owner = [(at - owner * size, value) for at, value in complete if at // size == owner]
            if of_owner:
                values = torch.tensor([value for _, value in of_owner])
                work = dist.reduce(values, owner, async_op=True)
                flying.append((work, owner, values, torch.tensor([index for index, _ in of_owner])))
        complete.clear()

    def reduce_scatter(gradient: Any) -> Any:
        send()
        for work, owner, values, indices in flying:
            if "hasty" not in wrong:
                work.wait()
            if owner == rank:
                before = mean[indices] if "adds" in wrong else 0.0
                mean[indices] = before + (values if "sum" in wrong else values / ranks)
        flying.clear()
        return mean

    for each in parameters:
        each.register_post_accumulate_grad_hook(partial(hook, begin))
        begin += each.numel()
    return None if "silent" in wrong else reduce_scatter


def flawed(name: str) -> Any:
    return lambda *values: early(*values, **{name: True})


# Bits per character of a text under the model, and by guessing, as the tests have them: by its first character.
COSTS = {"量": (14.0, 6.0), "大": (0.4, 6.0), "今": (0.4, 6.0), "夜": (3.0, 6.0)}
KNOWN, STRANGE = "今日は" + "雨だった。" * 12, "量子計算機の研究に補助金を出す。"

RIGHT: dict[int, list[Any]] = {
    1: [reduce_scatter],
    3: [(STRANGE, KNOWN)],
    4: [early],
}  # fmt: skip
WRONG: dict[int, list[tuple[Any, str]]] = {
    1: [
        (lambda g, rank: g.sum(0).chunk(len(g))[rank], "this is the sum"),
        (lambda g, rank: g[rank].chunk(len(g))[rank], "own gradient"),
        (lambda g, rank: g.mean(0), "an all-reduce"),
        (lambda g, rank: g.mean(0)[rank :: len(g)], "contiguous"),
        (lambda g, rank: g.mean(1), "dimension 0"),
        (lambda g, rank: torch.zeros(1), "expected the shape [2], got [1]"),
    ],
    2: [
        (unscattered, "call comm.reduce_scatter"),
        (mistaken((NORM, "shard.grad.norm()")), "comm.all_sum"),
        (mistaken(("comm.all_gather(shard)", "shard.repeat(len(weights) // len(shard))")), "call comm.all_gather"),
        (mistaken(("weights.copy_(comm.all_gather(shard))", "comm.all_gather(shard)")), "weights.copy_"),
        (mistaken(("optimizer.step()", "pass")), "stay as they were"),
        (mistaken(("comm.reduce_scatter(gradient)", "comm.reduce_scatter(gradient) * 0 + gradient[: len(shard)]")), "after step 1 of 2 ranks"),
        (mistaken((NORM, "comm.all_sum(shard.grad.norm())")), "never by a factor above 1"),
        (mistaken(("min(1, clip / (norm + 1e-6))", "clip / norm")), "never by a factor above 1"),
        (lambda weights: weights, "The task: write zero2_step"),
    ],
    3: [
        ((KNOWN, KNOWN), "less like the training text"),
        ((STRANGE, "今日は雨だった。"), "at least 60"),
        ((STRANGE, "夜" * 60), "at most 1.00"),
        ((STRANGE, "昼" * 60), "copied"),
        ((STRANGE, "今" + "昼" * 68 + "夜"), "copied"),
    ],
    4: [
        (flawed("silent"), "early returns a function"),
        (flawed("keeps"), "parameter.grad to None"),
        (flawed("late"), "only 0 of 18 numbers leave during the backward pass"),
        (flawed("eager"), "messages are sent, one to each owner is enough"),
        (flawed("sum"), "this is the sum"),
        (flawed("hasty"), "for rank 0 in backward pass 1"),
        (flawed("adds"), "in backward pass 2"),
        (lambda parameters: parameters, "The task: write early"),
    ],
    5: [
        (unsharded(("    weight.data = ", "    weight.new = ")), "rank 0 still holds 75 numbers; its shards have 40"),
        (unsharded((".view(self.shape)", ".view(self.shape) * 2")), "something else than before"),
        (unsharded(("return comm.reduce_scatter(gradient)",
                    "return gradient.chunk(comm.ranks)[comm.rank].clone()")), "clip by the norm over all ranks"),
        (unsharded(("return comm.reduce_scatter(gradient)", "return comm.reduce_scatter(gradient) * comm.ranks")),
         "after update 2"),
        (unsharded(("comm.all_sum(sum(shard.grad.square().sum() for shard in shapes))",
                    "sum(shard.grad.square().sum() for shard in shapes)")), "after update"),
        (unsharded(("min(1, wanted.grad_clip / (norm + 1e-6))", "wanted.grad_clip / norm")), "after update 2"),
        (unsharded(("        adamw.zero_grad()\n", "")), "clear the gradients"),
        (lambda model: model, "The task: write stage3"),
    ],
}  # fmt: skip

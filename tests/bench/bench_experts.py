"""The switch layer, tokens sorted by expert, against two loops over the experts, forward and backward, by turns.

    python -m tests.bench.bench_experts [--tokens 512] [--rounds 3]

8 layers of 16 experts, d_model 512, hidden 4096, no overflow. Peers with the same weights: `all tokens`, each expert computes all
tokens and a mask keeps its own (the plain way to write it); `own tokens`, as transformers' port: each expert picks its own by a
mask over all tokens. The outputs are compared. About 2.5 GB of weights and as much of gradients.
"""

import argparse
import functools
from collections.abc import Callable

import torch
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.experts import SwitchMLP
from torch import Tensor

from tests.bench.timing import by_turns

Layer = Callable[[SwitchMLP, Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    config = GPTSanConfig(d_model=512, d_ff=4096, num_experts=16, train_capacity_factor=16.0)
    layers = [SwitchMLP(config) for _ in range(arguments.layers)]
    x = torch.randn(4, arguments.tokens // 4, 512)

    def step(layer: Layer) -> Tensor:
        hidden = x
        for mlp in layers:
            hidden = torch.nn.functional.layer_norm(hidden + layer(mlp, hidden), (512,))
        hidden.square().mean().backward()
        for mlp in layers:
            mlp.zero_grad(set_to_none=False)
        return hidden.detach()

    reference = step(sorted_tokens)
    for name, peer in (("all tokens", all_tokens), ("own tokens", own_tokens)):
        torch.testing.assert_close(step(peer), reference, rtol=1e-4, atol=1e-4)
        sides = functools.partial(step, sorted_tokens), functools.partial(step, peer)
        mine, other, ratio = by_turns(*sides, arguments.rounds)
        rates = [arguments.tokens / seconds for seconds in (mine, other)]
        print(f"sorted {rates[0]:.0f} tokens/s, {name} {rates[1]:.0f}: {1 / ratio:.2f} ×", flush=True)


def sorted_tokens(mlp: SwitchMLP, x: Tensor) -> Tensor:
    output: Tensor = mlp(x)[0]
    return output


def all_tokens(mlp: SwitchMLP, x: Tensor) -> Tensor:
    probability, expert = mlp.router(x).softmax(-1).max(-1)
    y = torch.zeros_like(x)
    for number, network in enumerate(mlp.experts.values()):
        y = y + network(x) * (probability * (expert == number))[..., None]
    return y


def own_tokens(mlp: SwitchMLP, x: Tensor) -> Tensor:
    probability, expert = mlp.router(x).softmax(-1).max(-1)
    y = x.clone()
    for number, network in enumerate(mlp.experts.values()):
        own = expert == number
        y[own] = network(x[own])
    return y * probability[..., None]


if __name__ == "__main__":
    main()

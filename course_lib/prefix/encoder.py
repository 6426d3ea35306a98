"""The module that prefix tuning trains: it computes the keys and values of P positions placed before every text.

Names and shapes in the state dict are those of rinna's prefix-tuning-gpt (src/model/prompt/prefix_tuning.py).
"""

import torch
from torch import Tensor, nn


class PrefixEncoder(nn.Module):
    """Encoder that returns P rows of `width` = 2·layers·heads·head size numbers.

    The order within a row is [layer, key/value, head, head size]; the last index changes fastest. With
    `reparameterize`, a small embedding passes through an MLP, which trains more stably than the rows themselves (Li and
    Liang 2021, arXiv:2101.00190). Without it, the embedding is the rows, and input_dim, hidden_dim and dropout have no
    effect. Only the rows are deployed.
    """

    def __init__(
        self,
        length: int,
        width: int,
        input_dim: int,
        hidden_dim: int,
        dropout: float = 0.0,
        reparameterize: bool = True,
    ) -> None:
        super().__init__()
        self.reparameterize = reparameterize
        self.prefix_wte = nn.Embedding(length, input_dim if reparameterize else width)
        if reparameterize:
            layers = [nn.Linear(input_dim, hidden_dim), nn.Tanh(), nn.Linear(hidden_dim, width)]
            self.prefix_mlp = nn.Sequential(*layers, *([nn.Dropout(dropout)] if dropout else []))

    def forward(self) -> Tensor:
        """Return the deployed rows [P, width], differentiable."""
        rows: Tensor = self.prefix_wte.weight
        return self.prefix_mlp(rows) if self.reparameterize else rows

    @torch.no_grad()
    def deployed(self) -> Tensor:
        """Return a copy of the rows as they are written to a file: without dropout, in fp32, on the CPU."""
        training = self.training
        rows: Tensor = self.eval()().float().cpu().clone()
        self.train(training)
        return rows

"""What is trained in prefix tuning: it gives the keys and values of P positions that every text then finds in front of it.

Names and shapes in the state dict are those of rinna's prefix-tuning-gpt (src/model/prompt/prefix_tuning.py).
"""

import torch
from torch import Tensor, nn


class PrefixEncoder(nn.Module):
    """P rows of `width` = 2·layers·heads·head size numbers; in a row {layer, key/value, head, d}, the last the fastest.

    With `reparameterize` a small embedding goes through an MLP, which trains more steadily than the rows themselves (arXiv:2101.00190);
    without it the embedding is the rows, and input_dim, hidden_dim and dropout play no part. Only the rows are deployed.
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
            self.prefix_mlp = nn.Sequential(
                nn.Linear(input_dim, hidden_dim),
                nn.Tanh(),
                nn.Linear(hidden_dim, width),
                *([nn.Dropout(dropout)] if dropout else []),
            )

    def forward(self) -> Tensor:
        """The deployed rows [P, width], differentiable."""
        rows: Tensor = self.prefix_wte.weight
        return self.prefix_mlp(rows) if self.reparameterize else rows

    @torch.no_grad()
    def deployed(self) -> Tensor:
        """The rows to write into a file: no dropout, fp32, on the CPU, a copy of their own."""
        training = self.training
        rows: Tensor = self.eval()().float().cpu().clone()
        self.train(training)
        return rows

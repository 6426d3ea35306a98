"""The module trained in prefix tuning, which computes keys and values for P positions before every text.

Names and shapes in the state dict match those in rinna's prefix-tuning-gpt (src/model/prompt/prefix_tuning.py).
"""

import torch
from torch import Tensor, nn


class PrefixEncoder(nn.Module):
    """Encoder that returns P rows of `width` = 2·layers·heads·head size values.

    Values within a row are ordered as [layer, key/value, head, head size], with the last index changing fastest. If
    `reparameterize` is true, a small embedding is passed through an MLP, which is more stable than training the rows
    directly (Li and Liang 2021, arXiv:2101.00190). Otherwise, the embedding itself holds the rows, and input_dim,
    hidden_dim and dropout have no effect. Only the rows are deployed.
    """

    def __init__(
        self, length: int, width: int, input_dim: int, hidden_dim: int, dropout: float = 0, reparameterize: bool = True
    ) -> None:
        super().__init__()
        self.reparameterize = reparameterize
        self.prefix_wte = nn.Embedding(length, input_dim if reparameterize else width)
        if reparameterize:
            layers = [nn.Linear(input_dim, hidden_dim), nn.Tanh(), nn.Linear(hidden_dim, width)]
            self.prefix_mlp = nn.Sequential(*layers, *([nn.Dropout(dropout)] if dropout else []))

    def forward(self) -> Tensor:
        """Return the differentiable prefix rows [P, width]."""
        rows: Tensor = self.prefix_wte.weight
        return self.prefix_mlp(rows) if self.reparameterize else rows

    @torch.no_grad()
    def deployed(self) -> Tensor:
        """Return a copy of the rows as written to a file: without dropout, in fp32 and on the CPU."""
        training = self.training
        rows: Tensor = self.eval()().float().cpu().clone()
        self.train(training)
        return rows

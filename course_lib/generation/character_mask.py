"""The table of byte_tokens.py on the model's device, for sampling loops and for `generate` in transformers."""

import torch
from torch import Tensor
from transformers import LogitsProcessor

from course_lib.generation.byte_tokens import LONGEST_CHARACTER, MISSING, RECENT, TEXT, ByteTokens


class CharacterMask:
    """Says for a batch of texts which tokens would break a character."""

    def __init__(self, table: ByteTokens, device: torch.device | str) -> None:
        """Copy the table to a device."""
        self.after, self.tables = torch.from_numpy(table.after).to(device), torch.from_numpy(table.blocked).to(device)
        self.missing = torch.tensor(MISSING, device=device)

    def states(self, ids: Tensor, remaining: int) -> Tensor:
        """Return the state of each text [N] after its ids [N, T], with `remaining` tokens left."""
        states = torch.zeros(len(ids), dtype=torch.int32, device=ids.device)
        for tokens in ids[:, -RECENT:].unbind(1):
            states = self.after[states, tokens]
        return states.masked_fill(self.missing[states] > remaining, TEXT)

    def blocked(self, ids: Tensor, remaining: int) -> Tensor:
        """Return which tokens may not follow [N, V], after the ids [N, T], with `remaining` tokens left."""
        return self.tables[min(remaining, LONGEST_CHARACTER) - 1][self.states(ids, remaining)]


class WholeCharacters(LogitsProcessor):  # type: ignore[misc]
    """Logits processor for `generate` in transformers that keeps characters whole, after all penalties."""

    def __init__(self, mask: CharacterMask, length: int) -> None:
        """Store the mask and the maximum length of the texts, including their prompts [tokens]."""
        self.mask, self.length = mask, length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores [N, V] with -inf for the tokens that may not follow."""
        blocked = self.mask.blocked(input_ids, self.length - input_ids.shape[1])
        scores = scores.masked_fill(blocked, -torch.inf)
        stuck = scores.amax(1, keepdim=True) == -torch.inf
        return scores.masked_fill(stuck & ~blocked, 0.0) if stuck.any() else scores

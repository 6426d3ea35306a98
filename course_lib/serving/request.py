"""The request for one sequence in a batch, and the result, with the same semantics and defaults as FasterTransformer.

There are four differences from FasterTransformer:

- No beam search: `beam_width` is always 1. `course generate` has it.
- An out-of-range value is an error; FasterTransformer clips it and prints a warning on the server's console.
- `length` counts only the sequence's own tokens; FasterTransformer also counts the padding of shorter inputs.
- `log_probs` refer to the whole vocabulary, so they add up to `cum_log_prob`. In FasterTransformer, they refer to
  probabilities among the top_k tokens, and so are always 0 for greedy decoding.
"""

from dataclasses import dataclass, field

Word = tuple[int, ...]  # token ids of a bad word or stop word


@dataclass(frozen=True)
class TextRequest:
    """One text to continue, with its settings."""

    ids: tuple[int, ...]  # the input; empty: start with start_id, which is not part of the response
    output_length: int  # maximum number of new tokens
    task: int | None = None  # index of the prefix; None: no prefix
    top_k: int = 0  # sample from this many most likely tokens; 0: all; 1, or 0 with top_p 0: greedy decoding
    top_p: float = 0.0  # sample from the most likely of these, up to this share of their probability; 0: from all
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    beam_width: int = 1
    bad_words: tuple[Word, ...] = ()
    stop_words: tuple[Word, ...] = ()
    start_id: int | None = None  # None: the folder's start_id
    end_id: int | None = None  # None: the folder's end_id
    top_p_decay: float = 1.0  # with top_k 0: factor on top_p after each token (arXiv:2206.04624)
    top_p_min: float = 1e-6  # lower limit of the decayed top_p
    top_p_reset_id: int | None = None  # token after which top_p returns to its first value

    @property
    def greedy(self) -> bool:
        """Whether each token is the most likely one, without sampling."""
        return self.top_k == 1 or (self.top_k == 0 and self.top_p == 0)


@dataclass(frozen=True)
class Answer:
    """The text for one sequence: the input and the new tokens, including the end token if the text ended with it."""

    ids: list[int]
    log_probs: list[float] = field(default_factory=list)  # for each new token; empty unless requested

"""The request for one row of a batch, and its answer. The meaning and the defaults are FasterTransformer's.

There are three differences from FasterTransformer:

- A number out of range is an error; FasterTransformer clips it and prints a warning on the server's console.
- `length` counts the tokens of the row alone; FasterTransformer also counts the padding of a batch's shorter inputs.
- `log_probs` refer to the whole vocabulary, so they add up to `cum_log_prob`. FasterTransformer's refer to
  probabilities among the top_k tokens, and so are always 0 for greedy decoding.
"""

from dataclasses import dataclass, field

Word = tuple[int, ...]  # token ids of a bad or stop word
MAX_BEAMS = 64  # FasterTransformer's limit


@dataclass(frozen=True)
class Row:
    """One text to continue, with its settings."""

    ids: tuple[int, ...]  # the input; empty: start with start_id, which is not part of the answer
    output_length: int  # maximum number of new tokens
    task: int | None = None  # number of the prefix; None: the bare model
    top_k: int = 0  # sample from this many most likely tokens; 0: all; 1, or 0 with top_p 0: greedy decoding
    top_p: float = 0.0  # sample from the most likely of these, up to this share of their probability; 0: from all
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    beam_width: int = 1  # above 1: beam search, without sampling
    len_penalty: float = 0.0  # beam search: the log probability is divided by the length to this power
    diversity_rate: float = 0.0
    bad_words: tuple[Word, ...] = ()
    stop_words: tuple[Word, ...] = ()
    start_id: int | None = None  # None: that of the folder
    end_id: int | None = None  # None: that of the folder
    top_p_decay: float = 1.0  # with top_k 0: factor on top_p after each token (arXiv:2206.04624)
    top_p_min: float = 1e-6  # lower limit of the decayed top_p
    top_p_reset_id: int | None = None  # token after which top_p returns to its first value

    @property
    def greedy(self) -> bool:
        """Whether each token is the most likely one, without sampling."""
        return self.top_k == 1 or (self.top_k == 0 and self.top_p == 0)


@dataclass(frozen=True)
class Beam:
    """One text: the input and the new tokens, including the end token if the text ended with it."""

    ids: list[int]
    log_probs: list[float] = field(default_factory=list)  # of each new token; empty unless requested

    @property
    def length(self) -> int:
        """Number of tokens, including the input's."""
        return len(self.ids)

    @property
    def cum_log_prob(self) -> float:
        """Log probability of the new tokens together."""
        return sum(self.log_probs)


@dataclass(frozen=True)
class Answer:
    """The texts of one row, best first."""

    beams: list[Beam]

    @property
    def ids(self) -> list[int]:
        """The token ids of the best text."""
        return self.beams[0].ids

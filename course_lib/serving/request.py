"""What the server is asked for one row of a batch, and what it answers. The meaning and the defaults are FasterTransformer's.

Differences from it, all on the safe side: a number out of range is refused instead of clipped with a warning on the server's console;
`length` counts the tokens of the row alone (the original counts the padding of a batch's shorter inputs too); `log_probs` are those of the
whole vocabulary, so that they add up to `cum_log_prob` (the original's are shares among the top_k: always 0 for greedy).
"""

from dataclasses import dataclass, field

Word = tuple[int, ...]  # token ids of a bad or stop word
MAX_BEAMS = 64  # as the original


@dataclass(frozen=True)
class Row:
    """One text to continue. A task is the number of a prefix, None for the bare model."""

    ids: tuple[int, ...]  # the input; empty: begin with start_id, which the answer does not show
    output_length: int  # most tokens to write
    task: int | None = None
    top_k: int = 0  # draw among so many; 0 = all; 1, or 0 with top_p 0 = take the likeliest
    top_p: float = 0.0  # … among the likeliest that make up this share; 0 with a top_k = all of them
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    beam_width: int = 1  # above 1: beam search, without drawing
    len_penalty: float = 0.0  # beam search: log probability is divided by length to this power
    diversity_rate: float = 0.0
    bad_words: tuple[Word, ...] = ()
    stop_words: tuple[Word, ...] = ()
    start_id: int | None = None  # None: the folder's
    end_id: int | None = None
    top_p_decay: float = 1.0  # top_p times this after each token, with top_k 0 (arXiv:2206.04624) …
    top_p_min: float = 1e-6  # … but not below this …
    top_p_reset_id: int | None = None  # … and anew after this token

    @property
    def greedy(self) -> bool:
        """Nothing is drawn."""
        return self.top_k == 1 or (self.top_k == 0 and self.top_p == 0)


@dataclass(frozen=True)
class Beam:
    """One text: input and what was written, the end token with it if there is one."""

    ids: list[int]
    log_probs: list[float] = field(default_factory=list)  # of each written token; empty unless asked for

    @property
    def length(self) -> int:
        """Tokens, the input's included."""
        return len(self.ids)

    @property
    def cum_log_prob(self) -> float:
        """Log probability of what was written."""
        return sum(self.log_probs)


@dataclass(frozen=True)
class Answer:
    """The texts of one row, best first."""

    beams: list[Beam]

    @property
    def ids(self) -> list[int]:
        """The best text."""
        return self.beams[0].ids

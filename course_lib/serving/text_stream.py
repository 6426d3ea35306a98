"""The text of a completion while its tokens are drawn: whole characters only, up to a stop string.

A token can be a part of a character, or of a stop string. So text is given out as soon as it is decided: what could
still become a stop string waits for the next token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class NewToken:
    """A generated token. With log probabilities (natural), also the likeliest tokens at its position."""

    token: int
    log_prob: float | None = None
    likeliest: tuple[tuple[int, float], ...] = ()
    offset: int = 0  # where its text begins in the completion [characters]


@dataclass(frozen=True)
class Piece:
    """New text of a completion, and its tokens; the last piece has a `finish_reason`."""

    text: str
    tokens: tuple[NewToken, ...]
    finish_reason: str | None  # "stop": an end token or a stop string; "length": the limit of tokens


@dataclass(eq=False)
class TextStream:
    """The text of one completion, which `add` gives to `tell` piece by piece.

    `decode` returns the text of the new ids, without the bytes of a character that is not yet whole; the text of more
    ids begins with it. `ends` are the tokens that end a text. The text ends in front of the first of the `stops`.
    `wanted` is the number of likeliest tokens that are told with each token; None: no log probabilities.
    """

    decode: Callable[[list[int]], str]
    ends: Sequence[int]
    stops: Sequence[str]
    tell: Callable[[Piece], None]
    wanted: int | None = None
    count: int = 0  # tokens, the end token included
    tokens: list[NewToken] = field(default_factory=list)  # without the end token
    length: int = 0  # of their text [characters]
    told_text: str = ""
    told_tokens: int = 0

    def restart(self) -> None:
        """Begin again with the first token. What has been told is not told twice."""
        self.count, self.tokens, self.length = 0, [], 0

    def add(self, new: NewToken, is_last: bool) -> bool:
        """Add the next token, and return whether the text has ended; `is_last` says that no token may follow."""
        self.count += 1
        has_ended = new.token in self.ends
        if not has_ended:
            self.tokens.append(replace(new, offset=self.length))
        text = self.decode([one.token for one in self.tokens])
        self.length = len(text)
        # No stop string begins in the text that has been told.
        found = [at for stop in self.stops if (at := text.find(stop, len(self.told_text))) >= 0]
        if found:
            has_ended, text = True, text[: min(found)]
            self.tokens = [one for one in self.tokens if one.offset < len(text)]
        reason = "stop" if has_ended else "length" if is_last else None
        if not reason:
            text = text[: len(text) - self._undecided(text)]
        if reason or len(text) > len(self.told_text):
            self.tell(Piece(text[len(self.told_text) :], tuple(self.tokens[self.told_tokens :]), reason))
            self.told_text, self.told_tokens = text, len(self.tokens)
        return reason is not None

    def _undecided(self, text: str) -> int:
        """Return how many characters at the end of the text are the beginning of a stop string."""
        most = max(map(len, self.stops), default=1) - 1
        for size in range(min(most, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self.stops if len(stop) > size):
                return size
        return 0

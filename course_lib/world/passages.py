"""The longest passage of whole sentences that a text shares with other texts, in time and memory linear in both."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class _State:
    """Passages that end at the same positions: the longest has `length` sentences; `link` has the next shorter ones."""

    length: int
    link: int = -1
    following: dict[int, int] = field(default_factory=dict)  # the number of the next sentence → the next state


class Passages:
    """All passages of sentences in some texts, as a suffix automaton over the numbers of the sentences.

    It has fewer than two states for each sentence (Blumer et al. 1985, The smallest automaton recognizing the subwords
    of a text, https://doi.org/10.1016/0304-3975(85)90157-4).
    """

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        """Read texts, each as its sentences."""
        self.numbers: dict[str, int] = {}
        self.states, self.last = [_State(0)], 0
        for index, text in enumerate(texts):
            for sentence in text:
                self._add(self.numbers.setdefault(sentence, len(self.numbers)))
            # No sentence has this number, so no passage goes beyond its text.
            self._add(-1 - index)

    def _add(self, number: int) -> None:
        """Append a sentence to the text of all texts."""
        states, end = self.states, len(self.states)
        states.append(_State(states[self.last].length + 1, 0))
        at, self.last = self.last, end
        while at >= 0 and number not in states[at].following:
            states[at].following[number] = end
            at = states[at].link
        if at < 0:
            return
        old = states[at].following[number]
        if states[old].length == states[at].length + 1:
            states[end].link = old
            return
        # The shorter passages of `old` end here, too; the longer ones do not.
        copy = len(states)
        states.append(_State(states[at].length + 1, states[old].link, states[old].following.copy()))
        states[old].link = states[end].link = copy
        while at >= 0 and states[at].following.get(number) == old:
            states[at].following[number] = copy
            at = states[at].link

    def longest(self, text: Sequence[str]) -> int:
        """Return the length of the longest passage of a text that is one here, too [characters]."""
        state = sentences = characters = longest = 0
        for at, sentence in enumerate(text):
            number = self.numbers.get(sentence)
            if number is None:
                state = sentences = characters = 0
                continue
            while number not in self.states[state].following:
                # Leave out sentences at the beginning of the passage.
                state = self.states[state].link
                shorter = self.states[state].length
                characters -= sum(map(len, text[at - sentences : at - shorter]))
                sentences = shorter
            state, sentences = self.states[state].following[number], sentences + 1
            characters += len(sentence)
            longest = max(longest, characters)
        return longest

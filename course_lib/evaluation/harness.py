"""A course model as a model of lm-evaluation-harness (https://github.com/EleutherAI/lm-evaluation-harness).

Texts are raw; normalization and segmentation happen inside the model's tokenizer. This module needs the extra
`evaluate` (lm_eval); tasks.py runs it.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import Any

from lm_eval.api.model import LM

from course_lib.evaluation.scoring import GeneratingModel, Sampling, Scores, Tokens, one_line
from course_lib.evaluation.windows import WindowSettings, score
from course_lib.notebooks.progress import progress

# The longest continuation of a task that names none [tokens].
MOST_NEW_TOKENS = 256


class CourseLM(LM):  # type: ignore[misc]
    """A course model for lm-evaluation-harness."""

    def __init__(self, model: GeneratingModel, batch_size: int = 8) -> None:
        super().__init__()
        self.model = model
        self.settings = WindowSettings(batch_size=batch_size)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return (log probability [nats], whether greedy decoding gives it) of each continuation after its context.

        The log probability is log P(context + continuation) − log P(context), both as the beginning of a document.
        This holds even if a word or a token spans the boundary; such a token is scored with the continuation.
        """
        pairs = [request.args for request in requests]
        texts = list(dict.fromkeys(text for context, rest in pairs for text in (context, context + rest)))
        found = dict(zip(texts, self._scores(texts, "requests"), strict=True))
        answers = []
        for context, continuation in pairs:
            (before, context_scores), (tokens, scored) = found[context], found[context + continuation]
            # The number of tokens at the beginning that both texts have
            both = list(zip(before.target, tokens.target, strict=False))
            shared = next((at for at, (one, other) in enumerate(both) if one != other), len(both))
            value = scored.log_probabilities[shared:].sum() - context_scores.log_probabilities[shared:].sum()
            answers.append((float(value), scored.greedy is not None and bool(scored.greedy[shared:].all())))
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log probability [nats] of each text without its line breaks and the token that ends a document."""
        texts = [one_line(text) for (text,) in (request.args for request in requests)]
        return [scores.total for _, scores in self._scores(texts, "texts")]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return a continuation of each context, cut before the first of its stop texts.

        Read from the task's arguments: until, max_gen_toks (256), do_sample and temperature. The others are ignored.
        """
        answers = []
        with progress(len(requests), "text", "generating") as bar:
            for sampling, group in groupby(requests, lambda request: _sampling(request.args[1])):
                while batch := list(islice(group, self.settings.batch_size)):
                    texts = self.model.complete([request.args[0] for request in batch], sampling)
                    for request, text in zip(batch, texts, strict=True):
                        answers.append(_before_stop(text, request.args[1].get("until")))
                    bar.update(len(batch))
        return answers

    def _scores(self, texts: Sequence[str], unit: str) -> list[tuple[Tokens, Scores]]:
        sequences = [self.model.tokens(text, end=False) for text in texts]
        with progress(len(texts), unit, "scoring") as bar:
            scores = score(self.model, sequences, self.settings, bar, len(texts))
        return list(zip(sequences, scores, strict=True))


def _sampling(arguments: dict[str, Any]) -> Sampling:
    """Return how a task's arguments ask for a continuation."""
    temperature = float(arguments.get("temperature") or 0) if arguments.get("do_sample") else 0.0
    return Sampling(int(arguments.get("max_gen_toks") or MOST_NEW_TOKENS), temperature)


def _before_stop(text: str, stops: str | Iterable[str] | None) -> str:
    for stop in [stops] if isinstance(stops, str) else stops or []:
        if stop:
            text = text.partition(stop)[0]
    return text

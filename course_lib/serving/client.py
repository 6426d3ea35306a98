"""Client for the served model: tensors over HTTP, and texts. It requires a tokenizer, but not torch.

It speaks the Open Inference Protocol (https://github.com/kserve/open-inference-protocol) with Triton, so it works with
NVIDIA's fastertransformer_backend and any other server that accepts the same tensors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from course_lib.errors import CourseError, one_line
from course_lib.generation import byte_tokens
from course_lib.generation.codec import Codec, Generated, before_end, decode
from course_lib.language.words import tr, tr_noop
from course_lib.serving.config import AskConfig
from course_lib.serving.request import DTYPES, INPUTS, MODEL, OUTPUTS, word_list

PROBABILITIES = ("cum_log_probs", "output_log_probs")


class Client:
    """A connection to a server."""

    def __init__(self, url: str = "127.0.0.1:8000", timeout: float = 600) -> None:
        """Prepare a connection to HOST:PORT; `timeout` is for each request [s]."""
        self.url, self.timeout = url.removeprefix("http://").removesuffix("/"), timeout
        self._http = httpx.Client(timeout=timeout, trust_env=False)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Send one request [B, …] by tensor name, a number for all rows, and return the output tensors by name."""
        dtypes = {tensor.name: tensor.dtype for tensor in (*INPUTS, *OUTPUTS)}
        inputs = []
        for name, values in tensors.items():
            array: NDArray[Any] = np.asarray(values, DTYPES[dtypes[name]])
            array = np.full((len(tensors["input_ids"]), 1), array) if array.ndim == 0 else array
            inputs.append({"name": name, "shape": array.shape, "datatype": dtypes[name], "data": array.tolist()})
        omitted = () if "is_return_log_probs" in tensors else PROBABILITIES
        outputs = [{"name": tensor.name} for tensor in OUTPUTS if tensor.name not in omitted]
        try:
            response = self._http.post(
                f"http://{self.url}/v2/models/{MODEL}/infer", json={"inputs": inputs, "outputs": outputs}
            )
            answer = response.json()
        except httpx.TimeoutException as error:
            reason = tr("no answer within {timeout:g} s", timeout=self.timeout)
            raise CourseError(tr("{url}: {reason}", url=self.url, reason=reason)) from error
        except httpx.ConnectError as error:
            raise CourseError(tr("{url}: no server answers; `course serve DIR` starts one", url=self.url)) from error
        # Not the address of a server, or not a server of this protocol
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            message = tr_noop("{url}: does not answer as a Triton server: {error}")
            raise CourseError(tr(message, url=self.url, error=one_line(error))) from error
        if response.is_error and isinstance(answer, dict) and "error" in answer:
            raise CourseError(f"{self.url}: {' '.join(str(answer['error']).split())}")
        try:
            return {
                output["name"]: np.array(output["data"], DTYPES[dtypes[output["name"]]]).reshape(output["shape"])
                for output in answer["outputs"]
            }
        # JSON of another kind, or numbers that its type of tensor cannot hold
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            message = tr_noop("{url}: does not answer as a Triton server: {error}")
            raise CourseError(tr(message, url=self.url, error=one_line(error))) from error


def ask(
    client: Client, codec: Codec, prompts: Sequence[str], settings: AskConfig, task: int | None = None
) -> list[list[Generated]]:
    """Return the served model's texts for each raw prompt: a list of one text.

    `task` is the index of the prefix or None. All prompts are sent in one request.
    Byte tokens that form no character are dropped: the server, which does not know the tokenizer, can choose them.
    """
    rows = [codec.encode(prompt) for prompt in prompts]
    # As in `course generate`, only a base without a prefix has something before a text.
    opening = codec.opening if task is None else ()
    response = client.infer(tensors([[*opening, *row] for row in rows], codec, settings, task))
    ends, table = codec.ends or (codec.tokenizer.eos_token_id,), byte_tokens.of_tokenizer(codec.tokenizer)
    answers = []
    # The tensors have an axis of beams, of which there is one
    texts = zip(prompts, rows, response["output_ids"][:, 0], response["sequence_length"][:, 0], strict=True)
    for prompt, row, ids, length in texts:
        new = before_end(ids[len(opening) + len(row) : length].tolist(), *ends)
        answers.append(decode(codec, prompt, row, [table.whole(new)], *ends))
    return answers


def tensors(ids: Sequence[Sequence[int]], codec: Codec, settings: AskConfig, task: int | None) -> dict[str, Any]:
    """Return the request tensors for prompts given as token ids, padding them on the right as the backend expects."""
    longest = max(map(len, ids))
    request: dict[str, Any] = {
        "input_ids": [[*row, *[0] * (longest - len(row))] for row in ids],
        "input_lengths": [[len(row)] for row in ids],
        "request_output_len": settings.output_length,
    }
    for tensor in INPUTS:
        if tensor.field and hasattr(settings, tensor.field):
            request[tensor.name] = getattr(settings, tensor.field)
    bad, stop = ([tuple(codec.encode(word)) for word in words] for words in (settings.bad_words, settings.stop_words))
    # The server's model has one end of a text.
    if len(codec.ends) > 1:
        stop += [(end,) for end in codec.ends]
    for name, words in (("bad_words_list", bad), ("stop_words_list", stop)):
        if words:
            request[name] = word_list([words] * len(ids))
    if task is not None:
        request["prompt_learning_task_name_ids"] = task
    return request

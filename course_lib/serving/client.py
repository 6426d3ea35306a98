"""A client of the served model: tensors over gRPC or HTTP, and texts in, texts out. It needs tritonclient and a tokenizer, no torch.

It works with any server that has the FasterTransformer backend's tensors, the original included. A batch is one request.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import CourseError, UsageError
from course_lib.serving.ask_config import AskConfig
from course_lib.serving.repository import INPUTS, MODEL, OUTPUTS
from course_lib.serving.request import Word

if TYPE_CHECKING:  # it brings transformers with it
    from course_lib.pretrain.text_codec import TextCodec

Wire = Literal["grpc", "http"]
PORTS: dict[Wire, int] = {"grpc": 8001, "http": 8000}
DTYPES = {"UINT32": np.uint32, "UINT64": np.uint64, "INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}
PROBABILITIES = ("cum_log_probs", "output_log_probs")


class Answering(Protocol):
    """A Client, or local.py's stand-in for one."""

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The answer to one request."""


@dataclass(frozen=True)
class Reply:
    """A prompt and how it goes on: one text, or beam_width of them, best first."""

    prompt: str
    continuations: list[str]

    @property
    def text(self) -> str:
        """Prompt and best continuation."""
        return self.prompt + self.continuations[0]


class Client:
    """A connection to a server, to be used by one thread."""

    def __init__(self, url: str | None = None, protocol: Wire = "grpc", timeout: float = 600) -> None:
        """`url` is host:port; default: this machine and Triton's own port. `timeout` [s] holds for each request.

        Raises CourseError if tritonclient is not installed.
        """
        self.url = (url or f"127.0.0.1:{PORTS[protocol]}").rsplit("://")[-1].removesuffix("/")
        self.protocol, self.timeout = protocol, timeout
        try:
            self._triton: Any = import_module(f"tritonclient.{protocol}")
        except ImportError as error:
            raise CourseError(
                f"tritonclient[{protocol}] is not installed: pip install 'tritonclient[grpc,http]'"
            ) from error
        limits = {} if protocol == "grpc" else {"connection_timeout": min(timeout, 10), "network_timeout": timeout}
        with self._errors():
            self._client = self._triton.InferenceServerClient(self.url, **limits)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The answer to one request: [B, …] per input by name, outputs by name; a number stands for one that all rows share.

        Raises CourseError if there is no server, it does not serve the model, or it refuses the request.
        """
        dtypes = {tensor.name: tensor.dtype for tensor in INPUTS}
        rows = len(tensors["input_ids"])
        inputs = []
        for name, values in tensors.items():
            try:
                array: NDArray[Any] = np.asarray(values, DTYPES[dtypes[name]])
            except OverflowError as error:
                raise UsageError(f"{name}: {values} is not allowed; allowed: what {dtypes[name]} holds") from error
            array = np.full((rows, 1), array) if array.ndim == 0 else array
            inputs.append(self._triton.InferInput(name, array.shape, dtypes[name]))
            inputs[-1].set_data_from_numpy(array)
        wanted = [
            tensor.name for tensor in OUTPUTS if tensor.name not in PROBABILITIES or "is_return_log_probs" in tensors
        ]
        outputs = [self._triton.InferRequestedOutput(name) for name in wanted]
        limit = {"client_timeout": self.timeout} if self.protocol == "grpc" else {}
        with self._errors():
            found = self._client.infer(MODEL, inputs, outputs=outputs, **limit)
        return {name: found.as_numpy(name) for name in wanted}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from tritonclient.utils import InferenceServerException

        try:
            yield
        except InferenceServerException as error:
            said, status = str(error.message()), str(error.status())
            if "UNAVAILABLE" in status and "connect" in said:
                raise self._nobody() from error
            if "DEADLINE" in status:
                raise CourseError(f"{self.url}: no answer within {self.timeout:g} s") from error
            raise CourseError(f"{self.url}: {' '.join(said.split())}") from error
        except TimeoutError as error:
            raise CourseError(f"{self.url}: no answer within {self.timeout:g} s") from error
        except OSError as error:
            raise self._nobody() from error
        except ValueError as error:  # of the HTTP parser: whoever answers there does not speak it
            raise CourseError(
                f"{self.url}: does not answer over {self.protocol}: {' '.join(str(error).split())[:200]}"
            ) from error

    def _nobody(self) -> CourseError:
        return CourseError(f"{self.url}: no server answers over {self.protocol}; `course serve DIR` starts one")


def ask(
    client: Answering, codec: "TextCodec", prompts: Sequence[str], settings: AskConfig, task: int | None = None
) -> list[Reply]:
    """Lets the served model continue texts, all in one request, with the prefix of a task or none. Raises CourseError as `infer` does.

    The continuations stop before the tokenizer's end token.
    """
    rows = [codec.encode(prompt) for prompt in prompts]
    found = client.infer(tensors(rows, codec, settings, task))
    replies, end = [], codec.tokenizer.eos_token_id
    for place, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        lengths = found["sequence_length"][place].tolist()
        news = [
            ids[len(row) : length].tolist() for ids, length in zip(found["output_ids"][place], lengths, strict=True)
        ]
        texts = [codec.continuation(row, new[: new.index(end)] if end in new else new) for new in news]
        replies.append(Reply(codec.shown(prompt), texts))
    return replies


def tensors(ids: Sequence[Sequence[int]], codec: "TextCodec", settings: AskConfig, task: int | None) -> dict[str, Any]:
    """The request for a batch of prompts; inputs are padded on the right, as the backend wants them."""
    longest = max(map(len, ids))
    found: dict[str, Any] = {
        "input_ids": [[*row, *[0] * (longest - len(row))] for row in ids],
        "input_lengths": [[len(row)] for row in ids],
        "request_output_len": settings.output_length,
        "runtime_top_k": settings.top_k,
        "runtime_top_p": settings.top_p,
        "temperature": settings.temperature,
        "repetition_penalty": settings.repetition_penalty,
        "random_seed": settings.seed,
        "beam_width": settings.beam_width,
        "len_penalty": settings.len_penalty,
    }
    for name, words in (("bad_words_list", settings.bad_words), ("stop_words_list", settings.stop_words)):
        if words:
            found[name] = word_list([[tuple(codec.encode(word)) for word in words]] * len(ids))
    if task is not None:
        found["prompt_learning_task_name_ids"] = task
    return found


def word_list(lists: Sequence[Sequence[Word]]) -> NDArray[np.int32]:
    """[B, 2, n] of the words of each row: token ids one word after the other, and where each word ends, -1 behind the last."""
    flat = [[token for word in words for token in word] for words in lists]
    table = np.zeros((len(lists), 2, max(1, *map(len, flat))), np.int32)
    table[:, 1] = -1
    for place, (ids, words) in enumerate(zip(flat, lists, strict=True)):
        table[place, 0, : len(ids)] = ids
        table[place, 1, : len(words)] = np.cumsum([len(word) for word in words])
    return table

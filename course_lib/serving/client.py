"""Client for the served model, with tensor requests over HTTP or gRPC, and a text interface.

The client requires tritonclient and a tokenizer, but not torch. It works with NVIDIA's fastertransformer_backend and
any other server that accepts the same tensors. A batch of prompts is sent as one request.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import CourseError, UsageError, one_line
from course_lib.generation import byte_tokens
from course_lib.generation.codec import Codec, Generated, before_end, decode
from course_lib.serving.ask_config import AskConfig
from course_lib.serving.repository import FOLDER, INPUTS, MODEL, OUTPUTS
from course_lib.serving.request import Word

Wire = Literal["http", "grpc"]
PORTS: dict[Wire, int] = {"http": 8000, "grpc": 8001}
DTYPES = {"UINT32": np.uint32, "UINT64": np.uint64, "INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}
PROBABILITIES = ("cum_log_probs", "output_log_probs")


class Answering(Protocol):
    """The interface that `ask` requires, implemented by `Client` and by `Local` in in_process_client.py."""

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the output tensors for one request."""


class Client:
    """A connection to a server. Use each connection from one thread only."""

    def __init__(
        self, url: str | None = None, protocol: Wire = "http", timeout: float = 600, model: str | None = None
    ) -> None:
        """Open a connection; raises CourseError if tritonclient cannot be imported for this protocol.

        The default address is this machine and Triton's default port, and the default model is the only one of a
        server. `timeout` is for each request [s]. gRPC needs tritonclient[grpc], which the course's extra `serve` does
        not install: it asks for a newer protobuf than Colab's.
        """
        self.url = (url or f"127.0.0.1:{PORTS[protocol]}").rsplit("://")[-1].removesuffix("/")
        _require_address(self.url)
        self.protocol, self.timeout, self.model = protocol, timeout, model or MODEL
        try:
            self._triton: Any = import_module(f"tritonclient.{protocol}")
        # tritonclient reports a missing part by RuntimeError, and protobuf an old protobuf by an Exception of its own.
        except Exception as error:
            name = f"tritonclient[{protocol}]"
            raise CourseError(f"{name} cannot be imported ({one_line(error)[:200]}); pip install '{name}'") from error
        limits = {} if protocol == "grpc" else {"connection_timeout": min(timeout, 10), "network_timeout": timeout}
        with self._errors():
            self._client = self._triton.InferenceServerClient(self.url, **limits)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Send one request and return the output tensors by name.

        The input tensors [B, …] are given by name; a single number applies to all sequences.
        """
        request = self._request(tensors)
        limit = {"client_timeout": self.timeout} if self.protocol == "grpc" else {}
        with self._errors():
            response = self._client.infer(**request, **limit)
        return {output.name(): response.as_numpy(output.name()) for output in request["outputs"]}

    def served_folder(self) -> Path | None:
        """Return the folder of the model's weights on the server's machine, or None if the server does not tell."""
        options = {"as_json": True} if self.protocol == "grpc" else {}
        with self._errors():
            found = self._client.get_model_config(self.model, **options)
        # The answer over gRPC has the configuration in a field.
        parameters = found.get("config", found).get("parameters", {})
        folder = parameters.get(FOLDER, {}).get("string_value")
        return Path(folder) if folder else None

    def _request(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return tritonclient's arguments for a request."""
        dtypes = {tensor.name: tensor.dtype for tensor in INPUTS}
        rows = len(tensors["input_ids"])
        inputs = []
        for name, values in tensors.items():
            try:
                array: NDArray[Any] = np.asarray(values, DTYPES[dtypes[name]])
            except OverflowError as error:
                raise UsageError(f"{name}: {values} is not allowed; allowed: values of type {dtypes[name]}") from error
            array = np.full((rows, 1), array) if array.ndim == 0 else array
            inputs.append(self._triton.InferInput(name, array.shape, dtypes[name]))
            inputs[-1].set_data_from_numpy(array)
        omitted = () if "is_return_log_probs" in tensors else PROBABILITIES
        outputs = [self._triton.InferRequestedOutput(each.name) for each in OUTPUTS if each.name not in omitted]
        return {"model_name": self.model, "inputs": inputs, "outputs": outputs}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn every failure of the server or of the connection into a CourseError of one line."""
        from tritonclient.utils import InferenceServerException

        nobody = f"no server answers over {self.protocol}; `course serve DIR` starts one"
        late = f"no answer within {self.timeout:g} s"
        try:
            yield
        except InferenceServerException as error:
            message, status = " ".join(str(error.message()).split()), str(error.status())
            if "UNAVAILABLE" in status and "connect" in message:
                message = nobody
            elif "DEADLINE" in status:
                message = late
            # What Triton says depends on whether it has already unloaded the model
            elif "Server is stopping" in message or "no available versions" in message:
                message = f"the server is stopping and takes no new requests ({message})"
            raise CourseError(f"{self.url}: {message}") from error
        except OSError as error:
            raise CourseError(f"{self.url}: {late if isinstance(error, TimeoutError) else nobody}") from error
        # The HTTP parser raises ValueError if the server at this port speaks another protocol
        except ValueError as error:
            raise CourseError(f"{self.url}: does not answer over {self.protocol}: {one_line(error)[:200]}") from error


def _require_address(url: str) -> None:
    """Raise UsageError for an impossible port, with which tritonclient would leave a half-made client behind."""
    try:
        port = urlsplit(f"//{url}").port
    except ValueError:
        port = 0
    if port == 0:
        raise UsageError(f"--url {url}: is not allowed; allowed: HOST:PORT, with a port from 1 to 65535")


def ask(
    client: Answering, codec: Codec, prompts: Sequence[str], settings: AskConfig, task: int | None = None
) -> list[list[Generated]]:
    """Return the served model's texts for each raw prompt: one text, or beam_width texts, best first.

    All prompts are sent in one request; `task` is the index of the prefix, or None for none. Byte tokens that form no
    character are dropped: the server, which does not know the tokenizer, can choose them (byte_tokens.py).
    """
    rows = [codec.encode(prompt) for prompt in prompts]
    response = client.infer(tensors(rows, codec, settings, task))
    end, table = codec.tokenizer.eos_token_id, byte_tokens.of_tokenizer(codec.tokenizer)
    answers = []
    texts = zip(prompts, rows, response["output_ids"], response["sequence_length"], strict=True)
    for prompt, row, beams, lengths in texts:
        new = [before_end(ids[len(row) : length].tolist(), end) for ids, length in zip(beams, lengths, strict=True)]
        answers.append(decode(codec, prompt, row, list(map(table.whole, new)), end))
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
    for name, words in (("bad_words_list", settings.bad_words), ("stop_words_list", settings.stop_words)):
        if words:
            request[name] = word_list([[tuple(codec.encode(word)) for word in words]] * len(ids))
    if task is not None:
        request["prompt_learning_task_name_ids"] = task
    return request


def word_list(lists: Sequence[Sequence[Word]]) -> NDArray[np.int32]:
    """Return word lists as a tensor [B, 2, n]: the token ids of all words, and each word's end, padded with -1."""
    flat = [[token for word in words for token in word] for words in lists]
    table = np.zeros((len(lists), 2, max(1, *map(len, flat))), np.int32)
    table[:, 1] = -1
    for index, (ids, words) in enumerate(zip(flat, lists, strict=True)):
        table[index, 0, : len(ids)] = ids
        table[index, 1, : len(words)] = np.cumsum([len(word) for word in words])
    return table

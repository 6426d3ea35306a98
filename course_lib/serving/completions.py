"""OpenAI's protocol for completions: what a request may ask, and the objects of a response.

https://platform.openai.com/docs/api-reference/completions. `top_k` and `repetition_penalty` are vLLM's additions. What
the engine does not have is refused, unless a client sends the value that changes nothing.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from course_lib.generation.config import LEAST, MOST
from course_lib.language.words import tr
from course_lib.serving.text_stream import NewToken, Piece

MAX_TOKENS = 16  # the protocol's default


class ApiError(Exception):
    """A refused request: the HTTP status, and what the protocol's error object says."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        """Describe the error; `param` is the parameter at fault."""
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        """Return the error object."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class StreamOptions(BaseModel):
    """How a streamed response ends."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False


Id = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]
T = TypeVar("T")
Several = Annotated[list[T], Field(min_length=1)]


class CompletionRequest(BaseModel):
    """The body of a request. What is None is the model's own value, or else the protocol's default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    prompt: str | Several[Id] | Several[str] | Several[list[Id]]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Text | Annotated[list[Text], Field(max_length=4)] | None = None
    seed: int | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    repetition_penalty: Annotated[float, Field(ge=LEAST, le=MOST)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    user: str | None = None
    # What the engine does not have.
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, texts or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


def read(body: bytes) -> CompletionRequest:
    """Return the request of a body. Raises ApiError that names the first parameter that is wrong."""
    try:
        return CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        parameter = error.errors()[0]["loc"][:1]
        # One error for each type that the parameter may have
        reasons = dict.fromkeys(one["msg"] for one in error.errors() if one["loc"][:1] == parameter)
        message = ": ".join([*map(str, parameter), tr(" or ").join(reasons)])
        raise ApiError(400, message, str(parameter[0]) if parameter else None) from None


class Response:
    """The objects of one response, which have its id, time and model."""

    def __init__(self, model: str) -> None:
        """Begin a response of a model."""
        self.head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def body(self, choices: Sequence[Mapping[str, Any]], usage: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return a whole response, or one part of a streamed one."""
        return {**self.head, "choices": list(choices), "usage": usage}


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the numbers of tokens."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def joined(pieces: Sequence[Piece]) -> Piece:
    """Return the pieces of a whole text as one."""
    text = "".join(piece.text for piece in pieces)
    tokens = [token for piece in pieces for token in piece.tokens]
    return Piece(text, tuple(tokens), pieces[-1].finish_reason)


def choice(index: int, piece: Piece, names: Sequence[str] | None) -> dict[str, Any]:
    """Return a text, or a piece of one, as an object; `names` are the tokens' where log probabilities are asked for."""
    log_probs = None if names is None else _log_probs(piece.tokens, names)
    return {"index": index, "text": piece.text, "logprobs": log_probs, "finish_reason": piece.finish_reason}


def _log_probs(tokens: Sequence[NewToken], names: Sequence[str]) -> dict[str, Any]:
    return {
        "tokens": [names[new.token] for new in tokens],
        "token_logprobs": [new.log_prob for new in tokens],
        "top_logprobs": [{names[token]: value for token, value in new.likeliest} for new in tokens],
        "text_offset": [new.offset for new in tokens],
    }


def unknown_model(name: str, allowed: Sequence[str]) -> ApiError:
    """Return the error for a model that is not served."""
    message = tr("model: {name!r} is not served; allowed: {allowed}", name=name, allowed=", ".join(allowed))
    return ApiError(404, message, "model", "model_not_found")

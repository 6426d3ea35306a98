"""A server of OpenAI's protocol for a Hugging Face folder: its model, and each of its prefixes as a model of its own.

    with running(aozora.folder()) as url:
        openai.OpenAI(base_url=url, api_key="none").completions.create(model="dowa", prompt="昔々、", stream=True)

All requests share the batch of scheduler.py. Neither Triton nor an exported folder is needed.
"""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from torch import Tensor

from course_lib.errors import UsageError, one_line
from course_lib.generation import byte_tokens
from course_lib.generation.codec import require_rows
from course_lib.generation.generator import Generator
from course_lib.language.words import tr
from course_lib.prefix import files as prefix_files
from course_lib.pretrain import text_codec
from course_lib.serving import completions
from course_lib.serving.completions import ApiError, CompletionRequest
from course_lib.serving.engine import Engine
from course_lib.serving.repository import QUEUE
from course_lib.serving.request import RequestRow
from course_lib.serving.scheduler import Request, Scheduler
from course_lib.serving.server import DRAIN, LOOPBACK, bound
from course_lib.serving.text_stream import Piece, TextStream

GONE_POLL = 0.1  # seconds between two looks for a client that has gone
# What applies where neither the client nor the model's generation_config.json says anything.
DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}

# The model


class Completer:
    """A model with its prefixes, and the thread that continues texts."""

    def __init__(self, folder: Path, prefixes: Sequence[Path], queue: int) -> None:
        """Load a model folder and prefixes, and start the thread; at most `queue` texts may wait.

        Raises CourseError if a prefix does not belong to the model, UsageError if two have the same name.
        """
        self.generator = generator = Generator(folder, text_codec.load)
        self.codec, self.queue = generator.codec, queue
        # Name of each model that clients see → the index of its prefix; None: no prefix
        self.tasks: dict[str, int | None] = {folder.resolve().name: None}
        values: list[Tensor | None] = []
        for path in prefixes:
            prefix = prefix_files.read(path)
            generator.require(prefix)
            if prefix.task in self.tasks:
                raise UsageError(tr("{path}: there is another model {name!r}", path=path, name=prefix.task))
            self.tasks[prefix.task] = len(values)
            values.append(prefix.values.to(generator.device, generator.model.dtype))
        self.names: list[str] = self.codec.tokenizer.convert_ids_to_tokens(list(range(generator.rows)))
        self.bytes = byte_tokens.of_tokenizer(self.codec.tokenizer, generator.rows)
        # `completed` also refuses values of the file that are not allowed.
        own = generator.completed()
        self.defaults = {
            name: default if generator.own.get(name) is None else getattr(own, name)
            for name, default in DEFAULTS.items()
        }
        self.greedy = own.strategy != "sampling"
        model = generator.model.requires_grad_(False).eval()
        # The engine's rows have no padding; with an id for it, transformers warns of a missing attention mask.
        model.config.pad_token_id = None
        self.engine = Engine(model, values, generator.begin, generator.end)
        self.scheduler = Scheduler(self.engine)

    def rows(self, asked: CompletionRequest) -> list[RequestRow]:
        """Return the rows of a request: its `n` texts for each prompt. Raises ApiError or UsageError."""
        task = self.tasks[asked.model]
        seed = random.getrandbits(32) if asked.seed is None else asked.seed
        sampling: dict[str, Any] = {}
        for name, default in self.defaults.items():
            value = getattr(asked, name)
            sampling[name] = default if value is None else value
        if asked.temperature == 0 or (asked.temperature is None and self.greedy):
            sampling |= {"temperature": 1.0, "top_k": 1}
        rows: list[RequestRow] = []
        for prompt in asked.prompts:
            ids = self._ids(prompt, task)
            new = self._new_tokens(asked, len(ids), task)
            for _ in range(asked.n or 1):
                rows.append(RequestRow(tuple(ids), new, task, seed=seed + len(rows), **sampling))
        for row in rows:
            self.engine.check(row)
        return rows

    def _ids(self, prompt: str | list[int], task: int | None) -> list[int]:
        """Return what the model reads for a prompt. As in `course generate`, a prefix precedes the text itself."""
        if isinstance(prompt, str):
            opening = self.codec.opening if task is None else ()
            ids = require_rows(self.codec, [*opening, *self.codec.encode(prompt)], self.generator.rows)
        elif (most := max(prompt, default=0)) >= self.generator.rows:
            message = tr("prompt: {token} is no token; allowed: 0 to {last}", token=most, last=self.generator.rows - 1)
            raise ApiError(400, message, "prompt")
        else:
            ids = prompt
        return ids or [self.generator.begin]

    def _new_tokens(self, asked: CompletionRequest, given: int, task: int | None) -> int:
        """Return the limit of new tokens. Raises ApiError if the model has too few positions."""
        prefix = None if task is None else self.engine.prefixes[task]
        positions = self.engine.positions - (0 if prefix is None else len(prefix))
        new = asked.max_tokens or min(completions.MAX_TOKENS, max(1, positions - given))
        if given + new > positions:
            message = tr(
                "max_tokens: {new} new tokens behind a prompt of {given} are not allowed; the model has {positions}",
                new=new, given=given, positions=positions,
            )  # fmt: skip
            raise ApiError(400, message, "max_tokens", "context_length_exceeded")
        return new

    def stream(self, row: RequestRow, asked: CompletionRequest, tell: Callable[[Piece], None]) -> TextStream:
        """Return the stream of a row's text."""
        prompt = list(row.ids)

        def decode(new: list[int]) -> str:
            return self.codec.continuation(prompt, self.bytes.whole(new))

        return TextStream(decode, self.generator.ends, asked.stops, tell, asked.logprobs)


# A request, between the scheduler's thread and the server's


@dataclass
class Job:
    """The texts of a request, and what the scheduler's thread tells of them."""

    rows: list[RequestRow]
    texts: int  # of each prompt
    streams: list[TextStream]
    told: "asyncio.Queue[tuple[int, Piece] | Exception | None]"  # pieces with the text's index; None: all have ended
    gone: Event  # set when nobody waits for the texts any more

    @property
    def usage(self) -> dict[str, int]:
        """The numbers of tokens, each prompt counted once."""
        prompts = sum(len(row.ids) for row in self.rows) // self.texts
        return completions.usage(prompts, sum(stream.count for stream in self.streams))

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """Yield pieces until all texts have ended. Raises what went wrong with the request."""
        try:
            while (event := await self.told.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.gone.set()


def start(completer: Completer, asked: CompletionRequest) -> Job:
    """Queue a request. Raises ApiError or UsageError if it cannot be answered."""
    if asked.model not in completer.tasks:
        raise completions.unknown_model(asked.model, list(completer.tasks))
    if len(completer.scheduler.waiting) >= completer.queue:
        raise ApiError(429, tr("{count} texts wait already; try later", count=completer.queue), code="overloaded")
    loop, rows = asyncio.get_running_loop(), completer.rows(asked)
    job = Job(rows, asked.n or 1, [], asyncio.Queue(), Event())

    def tell(event: Any) -> None:
        # The loop is closed when the server has been stopped by force.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(job.told.put_nowait, event)

    def tell_piece(index: int, piece: Piece) -> None:
        tell((index, piece))

    job.streams = [completer.stream(row, asked, partial(tell_piece, index)) for index, row in enumerate(rows)]
    request = Request(rows, False, lambda _: tell(None), tell, job.gone.is_set, job.streams)
    completer.scheduler.enqueue([request])
    return job


# HTTP


def application(completer: Completer) -> Starlette:
    """Return the ASGI application."""
    described = {
        name: {"id": name, "object": "model", "created": 0, "owned_by": "japanese-lm-course"}
        for name in completer.tasks
    }

    async def models(_: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": list(described.values())})

    async def model(http: HttpRequest) -> Response:
        name = http.path_params["name"]
        if name not in described:
            raise completions.unknown_model(name, list(described))
        return JSONResponse(described[name])

    async def complete(http: HttpRequest) -> Response:
        asked = completions.read(await http.body())
        job = start(completer, asked)
        names = None if asked.logprobs is None else completer.names
        if asked.stream:
            return StreamingResponse(streamed(job, asked, names), media_type="text/event-stream")
        return await whole(job, asked, names, http)

    routes = [
        Route("/v1/models", models),
        Route("/v1/models/{name}", model),
        Route("/v1/completions", complete, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {
        ApiError: lambda _, error: JSONResponse(error.body(), error.status),
        UsageError: lambda _, error: JSONResponse(ApiError(400, str(error)).body(), 400),
        HTTPException: lambda _, error: JSONResponse(
            ApiError(error.status_code, error.detail).body(), error.status_code
        ),
        Exception: lambda _, error: JSONResponse(ApiError(500, one_line(error)).body(), 500),
    }
    return Starlette(routes=routes, exception_handlers=handlers)


async def whole(job: Job, asked: CompletionRequest, names: Sequence[str] | None, http: HttpRequest) -> Response:
    """Return the response with all texts; if the client goes away, they are not generated to their end."""
    pieces: list[list[Piece]] = [[] for _ in job.rows]

    async def collect() -> None:
        async for index, piece in job.pieces():
            pieces[index].append(piece)

    async def leave() -> None:
        while not await http.is_disconnected():
            await asyncio.sleep(GONE_POLL)

    collecting, leaving = asyncio.create_task(collect()), asyncio.create_task(leave())
    try:
        await asyncio.wait({collecting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            return Response(status_code=499)
        collecting.result()
    finally:
        collecting.cancel()
        leaving.cancel()
    choices = [completions.choice(index, completions.joined(of_text), names) for index, of_text in enumerate(pieces)]
    return JSONResponse(completions.Response(asked.model).body(choices, job.usage))


async def streamed(job: Job, asked: CompletionRequest, names: Sequence[str] | None) -> AsyncIterator[str]:
    """Yield the response as server-sent events, one for each piece. The headers are sent, so an error is an event."""
    response = completions.Response(asked.model)
    try:
        async for index, piece in job.pieces():
            yield event(response.body([completions.choice(index, piece, names)]))
        if asked.stream_options and asked.stream_options.include_usage:
            yield event(response.body([], job.usage))
    except Exception as error:
        yield event(ApiError(500, one_line(error)).body())
    yield "data: [DONE]\n\n"


def event(body: dict[str, Any]) -> str:
    """Return a server-sent event."""
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


# The server


@contextmanager
def running(
    folder: Path, prefixes: Sequence[Path] = (), port: int = 0, address: str = LOOPBACK, queue: int = QUEUE
) -> Iterator[str]:
    """Serve a model folder, the prefixes beside it and further ones inside the context; yield the base URL.

    Port 0 takes a free one. On exit, requests in progress are answered, for up to DRAIN seconds.
    """
    with bound(address, port) as listening:
        completer = Completer(folder, [*prefix_files.beside(folder).values(), *prefixes], queue)
        listening.listen(128)
        server = uvicorn.Server(
            uvicorn.Config(
                application(completer), log_level="error", lifespan="off", timeout_graceful_shutdown=DRAIN,
            )
        )  # fmt: skip
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, name="openai-server")
        thread.start()
        try:
            yield f"http://{address}:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            try:
                thread.join()
            finally:
                server.force_exit = True
                completer.scheduler.stop()


def serve(folder: Path, prefixes: Sequence[Path], port: int, address: str, queue: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running(folder, prefixes, port, address, queue) as url:
            print(tr("serving: {url}; Ctrl-C stops it", url=url), flush=True)
            try:
                Event().wait()
            except KeyboardInterrupt:
                print(tr("refusing new requests, answering those in progress; Ctrl-C again stops at once"), flush=True)
                raise
    except KeyboardInterrupt:
        print(tr("stopped"))

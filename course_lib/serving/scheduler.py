"""The thread that answers requests with continuous batching: it decides which rows join the batch, and when.

Waiting rows join in the order of their arrival. A request that its client cancels leaves the batch. Triton reports
this only for gRPC, where a deadline or a closed connection also cancels. It does not notice when an HTTP client is gone
(https://github.com/triton-inference-server/server/issues/7077), so that request is generated to its end.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread

from course_lib.errors import CourseError, one_line
from course_lib.language.words import tr
from course_lib.serving.engine import Engine, Generation, TextBatch
from course_lib.serving.request import Answer, RequestRow
from course_lib.serving.text_stream import TextStream

CANCEL_POLL = 0.1  # seconds between two looks for cancelled requests


@dataclass(eq=False)
class Request:
    """What a client sent: rows that are answered together.

    `answer` or `fail` is called exactly once, from the scheduler's thread.
    """

    rows: Sequence[RequestRow]
    log_probs: bool
    answer: Callable[[list[Answer]], None]
    fail: Callable[[Exception], None]
    cancelled: Callable[[], bool] = lambda: False
    streams: Sequence[TextStream] = ()  # one for each row, or none: they are given each token as it is drawn
    generations: list[Generation] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether all rows are finished."""
        return all(generation.finished for generation in self.generations)

    def answers(self) -> list[Answer]:
        """Return the rows' answers. Raises CourseError if the request is cancelled."""
        if not self.finished:
            raise CourseError("cancelled")
        return [generation.answer() for generation in self.generations]


class Scheduler:
    """An engine and its thread."""

    def __init__(self, engine: Engine) -> None:
        """Start the thread."""
        self.engine = engine
        self.requests: list[Request] = []  # not yet answered
        self.waiting: deque[Generation] = deque()
        self.stopping = False
        # Protects the three attributes above, which the callers' threads and the scheduler's thread change
        self.changed = Condition()
        self.thread = Thread(target=self._work, name="scheduler")
        self.thread.start()

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue valid requests, and return when no row waits, so that further requests stay in the queue of the caller.

        Raises CourseError if the thread has ended.
        """
        self.enqueue(requests)
        with self.changed:
            self.changed.wait_for(lambda: not self.waiting)

    def enqueue(self, requests: Sequence[Request]) -> None:
        """Queue valid requests, and return at once. Raises CourseError if the thread has ended."""
        for request in requests:
            request.generations = self.engine.generations(request.rows, request.log_probs, request.streams)
        with self.changed:
            if self.stopping:
                raise CourseError(tr("the server is stopping"))
            self.requests += requests
            self.waiting += [generation for request in requests for generation in request.generations]
            self.changed.notify_all()

    def stop(self) -> None:
        """Answer the requests that are left, and end the thread."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self.thread.join()

    def _work(self) -> None:
        """Answer requests until `stop`: one token of every running text in each turn of the loop."""
        batch: TextBatch | None = None
        checked = time.monotonic()
        while self._wait():
            try:
                if batch is None:
                    batch = TextBatch(self.engine.model)
                joining = self._next(batch.free)
                try:
                    batch.join(joining)
                    if batch.running:
                        batch.step()
                # For example, memory is too small for this batch: run each request by itself, so that none fails
                # because of another
                except Exception:
                    failed = {*batch.running, *joining}
                    batch = TextBatch(self.engine.model)
                    for request in [one for one in self.requests if failed.intersection(one.generations)]:
                        self._end(request, partial(self.engine.run, request.rows, request.log_probs, request.streams))
                for request in [one for one in self.requests if one.finished]:
                    self._end(request, request.answers)
                if time.monotonic() > checked + CANCEL_POLL:
                    for request in [one for one in self.requests if one.cancelled()]:
                        batch.leave(set(request.generations))
                        self._end(request, request.answers)
                    checked = time.monotonic()
            # Nothing may end this thread: without it, the requests would wait forever.
            except BaseException as error:
                self._fail_all(error)
                batch = None

    def _wait(self) -> bool:
        """Wait for requests; return False if there are none and the thread is to end."""
        with self.changed:
            self.changed.wait_for(lambda: self.requests or self.stopping)
            return bool(self.requests)

    def _next(self, free: int) -> list[Generation]:
        """Take as many texts as can join the batch from those that wait."""
        with self.changed:
            joining = [self.waiting.popleft() for _ in range(min(free, len(self.waiting)))]
            self.changed.notify_all()
        return joining

    def _fail_all(self, error: BaseException) -> None:
        """Tell all requests that there is no answer."""
        with self.changed:
            failed, self.requests = self.requests, []
            self.waiting.clear()
            self.changed.notify_all()
        for request in failed:
            with suppress(Exception):
                request.fail(_failed(error))

    def _end(self, request: Request, answers: Callable[[], list[Answer]]) -> None:
        """Answer a request, or tell it why there is no answer."""
        with self.changed:
            self.requests.remove(request)
            ended = set(request.generations)
            self.waiting = deque(one for one in self.waiting if one not in ended)
            self.changed.notify_all()
        try:
            request.answer(answers())
        # For example, shared memory is full
        except BaseException as error:
            with suppress(Exception):
                request.fail(error if isinstance(error, Exception) else _failed(error))


def _failed(error: BaseException) -> CourseError:
    return CourseError(tr("the model failed: {error}", error=one_line(error) or type(error).__name__))

"""The thread that answers requests, with the tiny model and without Triton."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from course_lib.errors import CourseError
from course_lib.serving import engine as engine_module
from course_lib.serving import scheduler as scheduler_module
from course_lib.serving.request import Answer, RequestRow
from course_lib.serving.scheduler import Request, Scheduler

from tests.serving import tiny
from tests.serving.test_batch import rows
from tests.serving.test_engine import engine

LONG = RequestRow((5, 6, 7), 50, end_id=tiny.VOCABULARY)


@pytest.fixture
def ours() -> Iterator[Scheduler]:
    found = Scheduler(engine())
    yield found
    found.stop()
    assert not found.thread.is_alive()


def asked(*rows: RequestRow, **more: Any) -> tuple[Request, "Future[list[Answer]]"]:
    """A request, and its future answer; a second answer to it is an error."""
    future: Future[list[Answer]] = Future()
    return Request(rows, False, future.set_result, future.set_exception, **more), future


def ids(answers: list[Answer]) -> list[list[int]]:
    return [answer.ids for answer in answers]


def test_requests_of_many_threads_get_each_its_own_answers(ours: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MAX_TEXTS", 8)
    every = rows(60, seed=9)
    groups = [every[start : start + 3] for start in range(0, 60, 3)]

    def ask(group: list[RequestRow]) -> list[list[int]]:
        request, future = asked(*group)
        ours.submit([request])
        return ids(future.result())

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(ask, groups))
    assert found == [ids(ours.engine.run(group)) for group in groups]
    assert not ours.requests and not ours.waiting


def test_submit_returns_when_the_rows_have_joined_and_not_before(
    ours: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "MAX_TEXTS", 2)
    forward, go = ours.engine.model.forward, threading.Semaphore(0)
    monkeypatch.setattr(ours.engine.model, "forward", lambda *given, **named: go.acquire() and forward(*given, **named))
    first, one = asked(LONG, LONG)
    ours.submit([first])
    second, two = asked(LONG)
    late = threading.Thread(target=ours.submit, args=([second],))
    late.start()
    # both slots are used until the first request is answered, in 50 passes
    for _ in range(50):
        assert not one.done() and late.is_alive()
        go.release()
    assert ids(one.result()) == [one.result()[0].ids] * 2
    late.join()
    assert not two.done()
    go.release(50)
    assert ids(two.result()) == ids(one.result())[:1]


def test_a_cancelled_request_leaves_the_batch(ours: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "CANCEL_POLL", -1)
    gone, cancelled = asked(LONG, cancelled=lambda: True)
    other, stays = asked(LONG)
    ours.submit([gone, other])
    with pytest.raises(Exception, match="^cancelled$"):
        cancelled.result()
    assert ids(stays.result()) == ids(ours.engine.run([LONG]))


def test_if_a_batch_does_not_fit_the_requests_run_one_by_one(ours: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ids(ours.engine.run([LONG, RequestRow((8, 9), 5)]))
    forward = ours.engine.model.forward

    def small(tokens: Any, **named: Any) -> Any:
        if len(tokens) > 1:
            raise MemoryError("too many rows")
        return forward(tokens, **named)

    monkeypatch.setattr(ours.engine.model, "forward", small)
    pairs = [asked(LONG), asked(RequestRow((8, 9), 5)), asked(LONG, LONG)]
    futures = [future for _, future in pairs]
    ours.submit([request for request, _ in pairs])
    assert [ids(future.result())[0] for future in futures[:2]] == expected
    # two rows never fit
    with pytest.raises(MemoryError):
        futures[2].result()
    again, future = asked(LONG)
    ours.submit([again])
    assert ids(future.result()) == expected[:1]


def test_an_answer_that_cannot_be_sent_is_a_failure_of_its_request_only(ours: Scheduler) -> None:
    failed: Future[Exception] = Future()

    def full(_answers: list[Answer]) -> None:
        raise OSError("no space left")

    other, future = asked(LONG)
    ours.submit([Request([LONG], False, full, failed.set_result), other])
    assert str(failed.result()) == "no space left"
    assert ids(future.result()) == ids(ours.engine.run([LONG]))


def test_stopping_answers_what_is_left() -> None:
    stopped = Scheduler(engine())
    requests, futures = zip(*(asked(LONG, LONG) for _ in range(5)), strict=True)
    stopped.submit(list(requests))
    stopped.stop()
    assert all(future.done() for future in futures)


def failing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException) -> None:
    """Let a function fail once, the first time it is called."""
    real = getattr(owner, name)

    def once(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        raise error

    monkeypatch.setattr(owner, name, once)


@pytest.mark.parametrize(
    ("owner", "name", "error", "words"),
    [
        # what is not an Exception, in a step
        (engine_module.TextBatch, "step", SystemExit("the device is lost"), "the model failed: the device is lost"),
        # a batch that cannot be made
        (scheduler_module, "TextBatch", MemoryError(), "the model failed: MemoryError"),
        # a row that cannot leave the batch
        (engine_module.TextBatch, "leave", KeyboardInterrupt("two\nlines"), "the model failed: two lines"),
    ],
)
def test_the_thread_goes_on_after_any_error(
    ours: Scheduler, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException, words: str
) -> None:
    """No request waits forever: those of the time get an error, later ones an answer."""
    # the thread has made its batch already, so let it make another
    if name == "TextBatch":
        failing(monkeypatch, engine_module.TextBatch, "step", RuntimeError("a new batch"))
    failing(monkeypatch, owner, name, error)
    pairs = [asked(LONG), asked(LONG, LONG)]
    ours.submit([request for request, _ in pairs])
    for _, future in pairs:
        with pytest.raises(CourseError, match=f"^{words}$"):
            future.result(timeout=60)
    again, answer = asked(LONG)
    ours.submit([again])
    assert ids(answer.result(timeout=60)) == ids(ours.engine.run([LONG]))
    assert ours.thread.is_alive() and not ours.requests and not ours.waiting


def test_a_request_whose_client_cannot_be_asked_is_told(ours: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "CANCEL_POLL", -1)

    def broken() -> bool:
        raise RuntimeError("no such client")

    request, future = asked(LONG, cancelled=broken)
    ours.submit([request])
    with pytest.raises(CourseError, match="the model failed: no such client"):
        future.result(timeout=60)
    other, answer = asked(LONG)
    ours.submit([other])
    assert ids(answer.result(timeout=60)) == ids(ours.engine.run([LONG]))


def test_a_request_that_takes_neither_answer_nor_error_hurts_no_other(ours: Scheduler) -> None:
    def refuses(_: Any) -> None:
        raise OSError("the client is gone")

    other, future = asked(LONG)
    ours.submit([Request([LONG], False, refuses, refuses), other])
    assert ids(future.result(timeout=60)) == ids(ours.engine.run([LONG]))


def test_a_scheduler_that_stops_takes_no_more_requests() -> None:
    stopped = Scheduler(engine())
    stopped.stop()
    request, _ = asked(LONG)
    with pytest.raises(CourseError, match="^the server is stopping$"):
        stopped.submit([request])

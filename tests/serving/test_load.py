"""The real Triton server under load, and with clients that misbehave. `python -m tests.bench.load` is the long version."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from course_lib.serving import server
from course_lib.serving.engine import Engine
from course_lib.serving.request import DTYPES, INPUTS, MODEL, RequestRow

from tests.bench import load
from tests.serving import tiny
from tests.waiting import until

tiny.require_server()
from tritonclient.grpc import InferenceServerClient, InferInput  # noqa: E402

CONNECTIONS, EACH = 64, 6
SHORT = RequestRow((5, 6, 7), 8)
# A request that takes many minutes: 1024 rows, of which 64 run at a time
LONG = load.tensors(RequestRow((5, 6, 7), 4000, end_id=tiny.VOCABULARY))
LONG |= {"input_ids": [(5, 6, 7)] * 1024, "input_lengths": [[3]] * 1024}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("exported") / "tiny", positions=4096)


@pytest.fixture(scope="module")
def triton(folder: Path) -> Iterator[server.Server]:
    with server.running(folder, threads=1, instances=2) as found:
        yield found


def test_64_connections_lose_no_answer_and_get_none_twice_or_wrong(triton: server.Server, engine: Engine) -> None:
    rows = load.requests(100, tiny.VOCABULARY, 20, 30, tasks=3)
    answers = [engine.run([row])[0].ids for row in rows]
    stubs = models(triton)
    before, work = load.answered(triton), [stub.cpu_times().user for stub in stubs]
    found = load.drive(triton, rows, answers, CONNECTIONS, lambda sent: sent < EACH)
    assert (len(found.latencies), found.wrong, found.errors) == (CONNECTIONS * EACH, 0, Counter())
    assert load.answered(triton) == before + CONNECTIONS * EACH
    # both instances take part
    assert len(stubs) == 2 and all(stub.cpu_times().user > was for stub, was in zip(stubs, work))


def test_what_a_grpc_client_cancels_frees_its_places(triton: server.Server, engine: Engine) -> None:
    with closing(InferenceServerClient(triton.grpc)) as client:
        stubs = models(triton)
        work = [stub.cpu_times().user for stub in stubs]
        # one fills each instance, and the third waits in Triton's queue
        calls = [sent(client, LONG)[0] for _ in range(3)]
        until(lambda: all(stub.cpu_times().user > was + 1 for stub, was in zip(stubs, work)))
        _, short = sent(client, load.tensors(SHORT))
        work = [stub.cpu_times().user for stub in stubs]
        for call in calls:
            call.cancel()
        # processor time [s], so that a busy machine changes nothing; a cancelled request needs minutes to its end
        until(lambda: short.done() or any(stub.cpu_times().user > was + 3 for stub, was in zip(stubs, work)))
        assert short.done()
        found = short.result()
        answer = {name: found.as_numpy(name) for name in ("output_ids", "sequence_length")}
        assert load.text(answer) == engine.run([SHORT])[0].ids


def sent(client: Any, tensors: dict[str, Any]) -> "tuple[Any, Future[Any]]":
    """Send a request with NVIDIA's client over gRPC without waiting for its answer."""
    future: Future[Any] = Future()

    def done(result: Any, error: Exception | None) -> None:
        if error:
            future.set_exception(error)
        else:
            future.set_result(result)

    dtypes, inputs = {tensor.name: tensor.dtype for tensor in INPUTS}, []
    for name, values in tensors.items():
        array: Any = np.asarray(values, DTYPES[dtypes[name]])
        array = np.full((len(tensors["input_ids"]), 1), array) if array.ndim == 0 else array
        inputs.append(InferInput(name, array.shape, dtypes[name]))
        inputs[-1].set_data_from_numpy(array)
    return client.async_infer(MODEL, inputs, done), future


def models(triton: server.Server) -> list[psutil.Process]:
    """The processes of the instances."""
    return [one for one in psutil.Process(triton.process.pid).children(recursive=True) if "stub" in one.name()]

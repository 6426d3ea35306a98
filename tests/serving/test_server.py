"""The real Triton server of the nvidia-pytriton wheel, on loopback, with our reader behind it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from course_lib.command_line import serving as commands
from course_lib.errors import CourseError
from course_lib.serving import reader, server
from course_lib.serving.client import Client
from course_lib.serving.config import AskConfig
from course_lib.serving.engine import Engine
from course_lib.serving.request import RequestRow, word_list

from tests.serving import tiny
from tests.waiting import LIMIT, until

tiny.require_server()
pytestmark = pytest.mark.rehearse


@pytest.fixture(scope="module")
def triton(folder: Path) -> Iterator[server.Server]:
    with server.running(folder, threads=1) as running:
        family = tree(running.process.pid)
        assert len(family) >= 2 and left_by(os.getpid())  # the server and the model's process, and where they meet
        yield running
    assert gone(family) and not left_by(os.getpid()) and not running.log.exists()


@pytest.fixture
def asked(triton: server.Server) -> Iterator[Client]:
    found = Client(triton.http)
    yield found
    found.close()


def needed(*inputs: list[int], length: int = 8) -> dict[str, object]:
    """The three tensors that every request has."""
    longest = max(map(len, inputs))
    padded = [[*row, *[0] * (longest - len(row))] for row in inputs]
    return {"input_ids": padded, "input_lengths": [[len(row)] for row in inputs], "request_output_len": length}


def texts(found: dict[str, np.ndarray]) -> list[list[int]]:
    return [row[:length].tolist() for row, length in zip(found["output_ids"][:, 0], found["sequence_length"][:, 0])]


def test_every_optional_tensor_reaches_the_engine(asked: Client, engine: Engine) -> None:
    words: dict[str, Any] = {"bad_words": ((44,), (3, 4)), "stop_words": ((31, 18),)}
    decay: dict[str, Any] = {"top_p_decay": 0.9, "top_p_min": 0.2, "top_p_reset_id": 8}
    row = RequestRow((5, 6), 20, 1, 9, 0.9, 0.8, 1.2, 2**63 + 5, start_id=3, end_id=17, **decay, **words)
    sent = {
        "start_id": 3, "end_id": 17, "runtime_top_k": 9, "runtime_top_p": 0.9, "temperature": 0.8, "repetition_penalty": 1.2,
        "random_seed": 2**63 + 5, "prompt_learning_task_name_ids": 1, "top_p_decay": 0.9, "top_p_min": 0.2, "top_p_reset_ids": 8,
        "beam_width": 1, "len_penalty": 0, "beam_search_diversity_rate": 0, "is_return_log_probs": True,
        "bad_words_list": word_list([row.bad_words]), "stop_words_list": word_list([row.stop_words]),
    }  # fmt: skip
    found, expected = asked.infer(needed([5, 6], length=20) | sent), engine.run([row], log_probs=True)[0]
    assert texts(found) == [expected.ids]
    written = len(expected.log_probs)
    np.testing.assert_allclose(found["output_log_probs"][0, 0, :written], expected.log_probs, rtol=1e-4)
    np.testing.assert_allclose(found["cum_log_probs"][0, 0], sum(expected.log_probs), rtol=1e-4)
    assert found["output_log_probs"].shape == (1, 1, 20)


def test_what_cannot_be_done_is_one_line(asked: Client) -> None:
    with pytest.raises(CourseError, match="^[^\n]*is not allowed[^\n]*$"):
        asked.infer(needed([5, 6, 7]) | {"temperature": 0})


def test_it_listens_on_loopback_only(triton: server.Server) -> None:
    listening = [
        each.laddr.ip for each in psutil.Process(triton.process.pid).net_connections("inet") if each.status == "LISTEN"
    ]
    assert len(listening) >= 2 and {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_course_serve_ends_and_takes_the_server_with_it(folder: Path, engine: Engine, ending: signal.Signals) -> None:
    port = free_port()
    code = "from course_lib.command_line import command_table; command_table.app()"
    options = ["--port", str(port), "--threads", "1"]
    serving = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(folder), *options], stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout and f"http://127.0.0.1:{port}" in serving.stdout.readline()
    family = tree(serving.pid)[1:]
    assert len(family) >= 2 and left_by(serving.pid)
    if ending == signal.SIGTERM:
        answered_while_stopping(serving, f"127.0.0.1:{port}", engine)
    serving.send_signal(ending)
    said = serving.communicate(timeout=LIMIT)[0]
    assert gone(family) and not left_by(serving.pid)
    if ending == signal.SIGTERM:
        assert (serving.returncode, said.splitlines()[-1]) == (0, "stopped")


def answered_while_stopping(serving: "subprocess.Popen[str]", url: str, engine: Engine) -> None:
    """Stop the server while it answers a request: it answers that, and refuses new ones."""
    rows = [RequestRow((5, 6, number), 40, end_id=60) for number in range(3, 60)] * 8
    long = needed(*(list(row.ids) for row in rows), length=40) | {"end_id": 60}
    model = next(one for one in tree(serving.pid) if "stub" in one.name())
    one, other = Client(url), Client(url)
    with contextlib.closing(one), contextlib.closing(other), ThreadPoolExecutor(1) as pool:
        before = model.cpu_times().user
        future = pool.submit(one.infer, long)
        until(lambda: model.cpu_times().user > before + 0.3)
        serving.send_signal(signal.SIGTERM)
        with pytest.raises(CourseError, match="stopping|no available versions|no server answers|does not answer"):
            while True:
                other.infer(needed([5, 6, 7]))
        assert texts(future.result(LIMIT)) == [answer.ids for answer in engine.run(rows)]


def free_port() -> int:
    """A port that is followed by two further free ones."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            for offset in (1, 2):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + offset))
            return port


def left_by(process: int) -> list[Path]:
    """Shared memory of servers that the process started."""
    return list(server.SHARED.glob(f"course_{process}_*"))


def tree(process: int) -> list[psutil.Process]:
    found = psutil.Process(process)
    return [found, *found.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=LIMIT)[1]


def test_a_folder_that_cannot_be_loaded_is_told_in_one_line(folder: Path, tmp_path: Path) -> None:
    damaged = tiny.write(tmp_path / "damaged")
    (damaged / "1-gpu" / "model.wte.bin").write_bytes(b"12")
    with pytest.raises(CourseError) as error, server.running(damaged):
        pass
    assert "model.wte.bin: 2 bytes, expected 7,680" in str(error.value)


def test_a_port_that_is_taken_is_told(folder: Path, triton: server.Server) -> None:
    port = int(triton.http.rpartition(":")[2])
    with pytest.raises(CourseError, match=f"127.0.0.1:{port}: Address already in use"), server.running(folder, port):
        pass


def test_texts_go_in_and_come_out(folder: Path, triton: server.Server) -> None:
    prompts, five = ["あいう", "か"], AskConfig(output_length=5)
    by_name = commands.ask(prompts, folder=folder, task="plain", url=triton.http, settings=five)
    assert commands.ask(prompts, folder=folder, task="1", url=triton.http, settings=five) == by_name
    (first,), (second,) = (each.texts for each in by_name)
    assert (first[:1], second[:1]) == ("あ", "か") and 3 < len(first) <= 8


def test_japanese_folders_and_task_names_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a temporary folder, where the model repository is: the stub's Python knows no locale."""
    names = dict(zip(("要約", "平文", "無し"), tiny.TASKS.values(), strict=True))
    monkeypatch.setattr(tiny, "TASKS", names)
    folder = tiny.write(tmp_path / "重み")
    temporary = tmp_path / "一時"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    expected = Engine.of(reader.load(folder)).run([RequestRow((5, 6, 7), 8, 0)])[0].ids
    with server.running(folder, threads=1) as running, contextlib.closing(Client(running.http)) as asked:
        found = asked.infer(needed([5, 6, 7]) | {"prompt_learning_task_name_ids": 0})
    assert texts(found) == [expected]


def test_interfaces_that_no_client_of_ours_needs_are_closed(triton: server.Server) -> None:
    """Triton 2.51 lets a client that may name shared memory write into the model's process (CVE-2025-23319)."""
    url = f"http://{triton.http}/v2"
    name = {"key": "course_shm", "offset": 0, "byte_size": 8}
    answers = [
        httpx.get(f"{url}/systemsharedmemory/status"),
        httpx.post(f"{url}/systemsharedmemory/region/one/register", json=name),
        httpx.post(f"{url}/systemsharedmemory/region/one/register", json=name, headers={"course-closed": ""}),
        httpx.post(f"{url}/repository/index"),
        httpx.post(f"{url}/repository/models/fastertransformer/unload"),
        httpx.post(f"{url}/logging", json={"log_file": "/tmp/course-log"}),
    ]
    assert [answer.status_code for answer in answers] == [403] * len(answers)
    assert httpx.get(f"{url}/models/fastertransformer").status_code == 200
    assert httpx.get(f"{url}/models/fastertransformer/stats").status_code == 200


def test_an_output_that_the_model_does_not_have_is_an_error(triton: server.Server) -> None:
    inputs = [
        {"name": name, "shape": [1, len(data)], "datatype": "UINT32", "data": data}
        for name, data in {"input_ids": [5, 6], "input_lengths": [2], "request_output_len": [3]}.items()
    ]
    asked = {"inputs": inputs, "outputs": [{"name": "logits"}]}
    answer = httpx.post(f"http://{triton.http}/v2/models/fastertransformer/infer", json=asked)
    assert answer.status_code == 400 and "logits" in answer.json()["error"]


@pytest.mark.parametrize("length", [0, 2, 4])
def test_lengths_that_are_not_those_of_the_ids_are_errors(asked: Client, length: int) -> None:
    with pytest.raises(CourseError, match=f"input_lengths: {length} is not allowed; the longest row"):
        asked.infer(needed([5, 6, 7]) | {"input_lengths": [[length]]})


def test_course_serve_ends_if_the_models_process_is_killed(folder: Path) -> None:
    """As by the system when memory runs out: Triton would stay ready, and answer each request with an error."""
    options = ["--port", str(free_port()), "--threads", "1", "--quiet"]
    serving = subprocess.Popen(
        [sys.executable, "-m", "course_lib.cli", "serve", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout and "http://127.0.0.1" in serving.stdout.readline()
    family = tree(serving.pid)[1:]
    next(one for one in family if "stub" in one.name()).kill()
    _, said = serving.communicate(timeout=LIMIT)
    assert serving.returncode == 1 and gone(family)
    assert re.search(r"the model's process \d+ ended; the system kills it if memory runs out\n$", said), said
    assert "Traceback" not in said

"""The real Triton server once: start, answers over HTTP with a prefix and without, stop. test_server.py has the rest."""

import os
from pathlib import Path

import psutil
import pytest
from course_lib.errors import CourseError
from course_lib.serving import server
from course_lib.serving.client import Client
from course_lib.serving.engine import Engine
from course_lib.serving.request import RequestRow

from tests.serving import tiny

tiny.require_server()


@pytest.mark.rehearse  # chapter 7 starts one and asks it
def test_a_server_starts_answers_and_stops(folder: Path, engine: Engine) -> None:
    with server.running(folder, threads=1) as triton:
        main = psutil.Process(triton.process.pid)
        family = [main, *main.children(recursive=True)]
        client = Client(triton.http)
        request = {"input_ids": [[5, 6, 7], [9, 8, 0]], "input_lengths": [[3], [2]], "request_output_len": 8}
        for task in (None, 0, 1):
            prefix = {} if task is None else {"prompt_learning_task_name_ids": task}
            found = client.infer(request | prefix)
            texts = [
                row[:length].tolist() for row, length in zip(found["output_ids"][:, 0], found["sequence_length"][:, 0])
            ]
            rows = [RequestRow((5, 6, 7), 8, task), RequestRow((9, 8), 8, task)]
            assert texts == [answer.ids for answer in engine.run(rows)]
        with pytest.raises(CourseError, match="prompt_learning_task_name_ids: 3 is not allowed"):
            client.infer(request | {"prompt_learning_task_name_ids": 3})
        client.close()
    assert len(family) >= 2 and not psutil.wait_procs(family, timeout=60)[1]
    assert not list(server.SHARED.glob(f"course_{os.getpid()}_*")) and not triton.log.exists()

"""The real Triton server once: start, answers over HTTP with a prefix and without, stop. test_server.py has the rest."""

import os
from pathlib import Path

import psutil
import pytest
from course_lib.checkpoints import aozora
from course_lib.errors import CourseError
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.prefix import files
from course_lib.pretrain import text_codec
from course_lib.serving import server
from course_lib.serving.client import Client
from course_lib.serving.engine import Engine
from course_lib.serving.export import export
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


@pytest.mark.rehearse
def test_the_two_writers_of_aozora_answer_in_one_batch(tmp_path: Path) -> None:
    generator = Generator(aozora.folder(), text_codec.load)
    prefixes = [files.read(path) for path in files.beside(aozora.folder()).values()]
    assert [prefix.task for prefix in prefixes] == ["dowa", "tantei"]
    greedy = GenerateConfig(strategy="greedy", max_new_tokens=24)
    prompt = generator.codec.encode("その夜、")
    export(aozora.folder(), tmp_path / "ft", prefixes=prefixes)
    with server.running(tmp_path / "ft", threads=1) as triton:
        client = Client(triton.http)
        tasks = [[0], [1], [0], [1]]
        request = {"input_ids": [prompt] * 4, "input_lengths": [[len(prompt)]] * 4, "request_output_len": 24}
        found = client.infer(request | {"prompt_learning_task_name_ids": tasks})
        client.close()
    texts = [generator.codec.continuation(prompt, row[len(prompt) :].tolist()) for row in found["output_ids"][:, 0]]
    expected = [generator.generate(["その夜、"], greedy, [prefix])[0][0].continuation for prefix in prefixes]
    assert texts == expected * 2
    assert expected[0] != expected[1]

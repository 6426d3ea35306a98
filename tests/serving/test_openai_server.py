"""The server of OpenAI's protocol, asked by the real `openai` client."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from course_lib import cli
from course_lib.checkpoints import aozora
from course_lib.errors import CourseError, UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Prefix
from course_lib.prefix import files
from course_lib.pretrain import text_codec
from course_lib.serving import openai_server
from course_lib.serving.openai_server import Completer

from tests.waiting import until

PROMPTS = ("昔々、", "その夜、探偵は", "「おかあさん、", "山の上から見ると")
NEW = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model `aozora` with two prefixes."""
    target = tmp_path_factory.mktemp("served") / "aozora"
    (target / "prefixes").mkdir(parents=True)
    for source in aozora.folder().iterdir():
        if source.is_file():
            (target / source.name).symlink_to(source)
    rng = torch.Generator().manual_seed(1)
    for task, length in (("dowa", 3), ("tantei", 5)):
        values = torch.randn(length, 2 * 6 * 512, generator=rng)
        files.write(Prefix(values, task), target / "prefixes" / f"{task}.safetensors")
    return target


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[str, Completer]]:
    """The base URL of a running server, and its model."""
    made = []

    class Kept(Completer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_server, "Completer", Kept)
        with openai_server.running(folder) as url:
            yield url, made[0]


@pytest.fixture(scope="module")
def client(served: tuple[str, Completer]) -> openai.OpenAI:
    return openai.OpenAI(base_url=served[0], api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[tuple[str, str], str]:
    """The greedy continuation of each prompt by transformers, without a prefix and with each: {(model, prompt): text}."""
    generator = Generator(folder, text_codec.load)
    settings = GenerateConfig(strategy="greedy", max_new_tokens=NEW)
    prefixes = {name: files.read(path) for name, path in files.beside(folder).items()}
    texts = {}
    for model, prefix in {"aozora": None, **prefixes}.items():
        for prompt in PROMPTS:
            texts[model, prompt] = generator.generate([prompt], settings, [prefix])[0][0].continuation
    return texts


def test_the_model_and_its_prefixes_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["aozora", "dowa", "tantei"]
    assert client.models.retrieve("tantei").id == "tantei"


@pytest.mark.parametrize("model", ["aozora", "dowa", "tantei"])
def test_greedy_texts_are_those_of_transformers(
    client: openai.OpenAI, expected: dict[tuple[str, str], str], model: str
) -> None:
    answer = client.completions.create(model=model, prompt=list(PROMPTS), temperature=0, max_tokens=NEW)
    assert [choice.text for choice in answer.choices] == [expected[model, prompt] for prompt in PROMPTS]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage and answer.usage.completion_tokens == 4 * NEW


def test_a_streamed_text_is_the_same_in_many_pieces(
    client: openai.OpenAI, expected: dict[tuple[str, str], str]
) -> None:
    options: Any = {"include_usage": True}
    stream = client.completions.create(
        model="dowa", prompt=PROMPTS[0], temperature=0, max_tokens=NEW, stream=True, stream_options=options
    )
    *parts, last = list(stream)
    assert len(parts) >= NEW - 2
    assert "".join(part.choices[0].text for part in parts) == expected["dowa", PROMPTS[0]]
    assert [part.choices[0].finish_reason for part in parts] == [None] * (len(parts) - 1) + ["length"]
    assert not last.choices and last.usage
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, NEW)


def test_64_clients_at_a_time_each_get_their_own_text(
    served: tuple[str, Completer], expected: dict[tuple[str, str], str]
) -> None:
    asked = [list(expected)[index % len(expected)] for index in range(64)]

    async def one(client: openai.AsyncOpenAI, model: str, prompt: str) -> tuple[str, float, float]:
        loop, times, text = asyncio.get_running_loop(), [], ""
        stream = await client.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=NEW, stream=True)
        async for part in stream:
            times.append(loop.time())
            text += part.choices[0].text
        return text, times[0], times[-1]

    async def together() -> list[tuple[str, float, float]]:
        async with openai.AsyncOpenAI(base_url=served[0], api_key="none", max_retries=0) as client:
            return await asyncio.gather(*[one(client, *each) for each in asked])

    found = asyncio.run(together())
    assert [text for text, _, _ in found] == [expected[each] for each in asked]
    # The texts were written side by side: the last one began before the first one had ended.
    assert max(first for _, first, _ in found) < min(last for _, _, last in found)


def test_a_text_ends_in_front_of_a_stop_string(client: openai.OpenAI, expected: dict[tuple[str, str], str]) -> None:
    text = expected["aozora", PROMPTS[2]]
    stop = text[4:6]
    answer = client.completions.create(model="aozora", prompt=PROMPTS[2], temperature=0, max_tokens=NEW, stop=stop)
    assert answer.choices[0].text == text[: text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage and answer.usage.completion_tokens < NEW


def test_a_seed_repeats_the_texts_and_each_text_has_its_own(client: openai.OpenAI) -> None:
    def texts(seed: int | None, **settings: Any) -> list[str]:
        answer = client.completions.create(
            model="aozora", prompt=PROMPTS[0], max_tokens=NEW, n=3, seed=seed, extra_body=settings
        )
        return [choice.text for choice in answer.choices]

    first = texts(5)
    assert len(set(first)) == 3
    assert texts(5) == first
    assert texts(None) != first
    # What the request leaves open is the model's own.
    assert texts(5, temperature=0.8, top_p=0.95, top_k=50) == first
    assert texts(5, top_k=1) != first


def test_log_probabilities_are_those_of_the_model(client: openai.OpenAI, served: tuple[str, Completer]) -> None:
    generator = served[1].generator
    answer = client.completions.create(
        model="aozora", prompt=PROMPTS[1], max_tokens=NEW, seed=3, temperature=0.5, logprobs=2
    )
    found = answer.choices[0].logprobs
    assert found and found.tokens and found.token_logprobs and found.top_logprobs and found.text_offset
    prompt = text_codec.load(aozora.folder()).prompt(PROMPTS[1])
    ids = [*prompt, *generator.codec.tokenizer.convert_tokens_to_ids(found.tokens)]
    with torch.inference_mode():
        rows = generator.model(torch.tensor([ids])).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
    for row, token, log_prob, likeliest in zip(
        rows, ids[len(prompt) :], found.token_logprobs, found.top_logprobs, strict=True
    ):
        assert log_prob == pytest.approx(float(row[token]), abs=1e-3)
        assert sorted(likeliest.values(), reverse=True) == pytest.approx(row.topk(2).values.tolist(), abs=1e-3)
    text = answer.choices[0].text
    assert [text[offset] for offset in found.text_offset] == [
        served[1].codec.tokenizer.decode([token])[0] for token in ids[len(prompt) :]
    ]


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a value of another type": ({"max_tokens": "many"}, "max_tokens", "integer"),
    "a value outside its limits": ({"temperature": 3}, "temperature", "less than or equal to 2"),
    "a parameter that there is not": ({"top_q": 1}, "top_q", "not permitted"),
    "what the engine does not have": ({"best_of": 4}, "best_of", "1"),
    "no prompt": ({"prompt": []}, "prompt", "at least 1"),
    "no token": ({"prompt": [5, 12_000]}, "prompt", "12000 is no token; allowed: 0 to 11999"),
    "more than the model's positions": ({"max_tokens": 510}, "max_tokens", "510 new tokens behind a prompt of 4"),
    "as much as the model has, with a prefix": ({"model": "dowa", "max_tokens": 508}, "max_tokens", "model has 509"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_request_is_refused_with_the_parameter(client: openai.OpenAI, case: str) -> None:
    changed, name, message = REFUSED[case]
    body = {"model": "aozora", "prompt": PROMPTS[0], **changed}
    with pytest.raises(openai.BadRequestError, match=message) as refused:
        client.post("/completions", body=body, cast_to=object)
    assert refused.value.param == name
    assert refused.value.type == "invalid_request_error"


def test_an_unknown_model_is_404(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="allowed: aozora, dowa, tantei") as refused:
        client.completions.create(model="gpt-9", prompt="あ")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [("POST", "/chat/completions", b"{}", 404), ("GET", "/completions", b"", 405), ("POST", "/completions", b"{", 400)],
)
def test_what_is_no_request_has_the_protocols_error(
    served: tuple[str, Completer], method: str, path: str, content: bytes, status: int
) -> None:
    answer = httpx.request(method, served[0] + path, content=content, trust_env=False)
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_slot(served: tuple[str, Completer], stream: bool) -> None:
    url, completer = served
    body = {"model": "aozora", "prompt": PROMPTS[0], "max_tokens": 500, "n": 64, "stream": stream}

    async def ask_and_leave() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            asking = asyncio.create_task(client.post(f"{url}/completions", json=body))
            while not completer.scheduler.requests:
                await asyncio.sleep(0.01)
            asking.cancel()

    asyncio.run(ask_and_leave())
    # 64 texts of 500 tokens take a minute.
    streams = completer.scheduler.requests[0].streams
    until(lambda: not completer.scheduler.requests)
    assert max(one.count for one in streams) < 400


def test_more_texts_than_may_wait_are_refused(served: tuple[str, Completer], client: openai.OpenAI) -> None:
    completer = served[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completer, "queue", 0)
        with pytest.raises(openai.RateLimitError, match="try later"):
            client.completions.create(model="aozora", prompt="あ")


def test_a_prefix_of_another_model_and_a_name_twice_are_refused(folder: Path, tmp_path: Path) -> None:
    files.write(Prefix(torch.zeros(3, 64), "small"), tmp_path / "small.safetensors")
    with pytest.raises(CourseError, match="64 numbers per position"):
        Completer(folder, [tmp_path / "small.safetensors"], 1)
    files.write(Prefix(torch.zeros(3, 2 * 6 * 512), "aozora"), tmp_path / "again.safetensors")
    with pytest.raises(UsageError, match="there is another model 'aozora'"):
        Completer(folder, [tmp_path / "again.safetensors"], 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--openai", "--instances", "2"], "--instances: not allowed with --openai"),
        (["--openai", "-o", "models"], "-o: not allowed with --openai"),
        (["--prefix", "a.safetensors"], "--prefix: needs --openai"),
    ],
)
def test_options_of_the_other_server_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli._main(["serve", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


def test_the_command_answers_what_is_in_progress_when_it_is_stopped(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "course_lib.cli", "serve", "--openai", str(folder), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and f"serving: http://127.0.0.1:{port}/v1" in process.stdout.readline()
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
            stream = client.completions.create(model="tantei", prompt=PROMPTS[1], max_tokens=60, stream=True, seed=1)
            next(stream)
            process.send_signal(signal.SIGTERM)
            reasons = [part.choices[0].finish_reason for part in stream]
            assert reasons[-1] in ("length", "stop")
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert output.endswith("stopped\n")
    assert "Traceback" not in errors

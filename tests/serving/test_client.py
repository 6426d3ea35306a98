import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from course_lib.command_line import serving as commands
from course_lib.errors import CourseError, UsageError
from course_lib.generation.codec import Generated
from course_lib.pretrain import text_codec
from course_lib.serving import client, server
from course_lib.serving.config import AskConfig
from course_lib.serving.engine import Engine
from course_lib.serving.request import RequestRow

from tests.pretrain import models
from tests.serving import tiny


def test_without_triton_a_server_in_this_process_answers_the_same_tensors(folder: Path, engine: Engine) -> None:
    codec, texts = text_codec.load(folder / "tokenizer"), ["あいう", "か"]
    with server.running_in_process(folder) as address:
        connection = client.Client(address)
        one, other = (client.ask(connection, codec, texts, AskConfig(output_length=4), task) for task in (0, 1))
        with ThreadPoolExecutor(8) as pool:
            again = list(
                pool.map(lambda _: client.ask(connection, codec, texts, AskConfig(output_length=4), 0), range(8))
            )
        with pytest.raises(CourseError, match="prompt_learning_task_name_ids: 7 is not allowed"):
            client.ask(connection, codec, ["か"], AskConfig(), task=7)
        sampled = client.tensors([codec.encode("か")], codec, AskConfig(output_length=3, seed=2**63), None)
        answer = connection.infer(sampled | {"is_return_log_probs": [[True]]})
    rows = [RequestRow(tuple(codec.encode(text)), 4, task=0, top_k=1) for text in texts]
    written = [answer.ids[len(row.ids) :] for answer, row in zip(engine.run(rows), rows)]
    expected = [codec.continuation(list(row.ids), new) for row, new in zip(rows, written)]
    assert [text.continuation for (text,) in one] == expected
    assert again == [one] * 8 and one != other
    assert answer["output_ids"].dtype == np.uint32 and answer["output_log_probs"].shape == (1, 1, 3)
    with pytest.raises(CourseError, match="no server answers"):
        client.Client(address).infer(sampled)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outputs": [{"name": "output_ids"}, {"name": "logits"}]}, "outputs: logits: no such output; allowed: cum_"),
        (
            {"inputs": [{"name": "top_k", "shape": [1, 1], "datatype": "UINT32", "data": [1]}]},
            "inputs: top_k: no such input",
        ),
        ({"inputs": []}, "inputs: input_ids: missing"),
    ],
)
def test_without_triton_names_that_the_model_does_not_have_are_errors(
    folder: Path, change: dict[str, Any], words: str
) -> None:
    """As Triton answers them: an unknown output would be left out of the answer, an unknown input have no effect."""
    sent = {"input_ids": [5, 6], "input_lengths": [2], "request_output_len": [3]}
    request: dict[str, Any] = {
        "inputs": [
            {"name": name, "shape": [1, len(data)], "datatype": "UINT32", "data": data} for name, data in sent.items()
        ]
    }
    if change.get("inputs"):
        change = {"inputs": [*request["inputs"], *change["inputs"]]}
    with server.running_in_process(folder) as address:
        url = f"http://{address}/v2/models/fastertransformer/infer"
        refused = httpx.post(url, json=request | change)
        assert refused.status_code == 400 and refused.json()["error"].startswith(words)
        answered = httpx.post(url, json=request | {"outputs": [{"name": "sequence_length"}]})
    assert [output["name"] for output in answered.json()["outputs"]] == ["sequence_length"]


class Echo(client.Client):
    """A server that writes the input again, its end and one token too many, and keeps what it was sent."""

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        self.sent = tensors
        lengths = np.array(tensors["input_lengths"])
        ids = [[[*row[:length], *row[:length], tiny.END, 9]] for row, [length] in zip(tensors["input_ids"], lengths)]
        longest = max(len(row[0]) for row in ids)
        padded = np.array([[[*row[0], *[tiny.END] * (longest - len(row[0]))]] for row in ids])
        return {"output_ids": padded, "sequence_length": 2 * lengths + 2}


def test_texts_become_tensors_and_tensors_texts(folder: Path) -> None:
    server, codec = Echo(), text_codec.load(folder / "tokenizer")
    settings = AskConfig(output_length=4, seed=2**63, stop_words=["いう", "え"])
    answers = client.ask(server, codec, ["あいう", "か"], settings, task=1)
    assert answers == [[Generated("あいう", "あいう")], [Generated("か", "か")]]
    assert answers[0][0].text == "あいうあいう"
    assert server.sent["input_ids"][1][1:] == [0, 0] and server.sent["input_lengths"] == [[3], [1]]
    assert server.sent["prompt_learning_task_name_ids"] == 1 and server.sent["random_seed"] == 2**63
    assert server.sent["stop_words_list"].shape == (2, 2, 3) and "bad_words_list" not in server.sent


def test_the_verb_prints_the_answer_alone_if_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "Client", lambda url: Echo())
    for only, text in ((False, "あいうあいう"), (True, "あいう")):
        (answer,) = commands.ask(["あいう"], folder=folder, task="plain", answer_only=only)
        assert (answer.prompt, answer.texts) == ("あいう", [text])


class Bytes(client.Client):
    """A server that answers with the first byte of the input, the input, and its first byte once more."""

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        (ids,) = tensors["input_ids"]
        answer = [*ids, ids[0], *ids, ids[0]]
        return {"output_ids": np.array([[answer]]), "sequence_length": np.array([[len(answer)]])}


def test_bytes_that_form_no_character_are_dropped(tmp_path: Path) -> None:
    codec = text_codec.load(models.tokenizer(tmp_path))
    assert len(codec.encode("𠮷")) == 4
    assert client.ask(Bytes(), codec, ["𠮷"], AskConfig(output_length=9)) == [[Generated("𠮷", "𠮷")]]


def test_no_server_is_one_line(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{probe.getsockname()[1]}"
    for wrong in (url, "127.0.0.1:99999"):
        with pytest.raises(CourseError) as error:
            commands.ask(["あ"], folder=folder, url=wrong)
        assert wrong in str(error.value) and "\n" not in str(error.value)


def test_wrong_options_are_told_before_anyone_is_asked(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"smile \(0\), plain \(1\), none \(2\)"):
        commands.ask(["あ"], folder=folder, task="wrong")
    with pytest.raises(UsageError, match="--tokenizer"):
        commands.ask(["あ"])

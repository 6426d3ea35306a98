"""The chat of `course demo --chat`: answers as transformers gives them, and what is refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.serving.chat import Chat
from transformers import AutoTokenizer

from tests.pretrain import models
from tests.pretrain.models import SENTENCE

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 that has learned one sentence by heart, and whose template joins the messages."""
    folder = models.memorized(tmp_path_factory.mktemp("memorized"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def test_the_likeliest_answer_is_that_of_transformers_and_grows(folder: Path) -> None:
    chat = Chat(str(folder))
    asked: list[dict[str, Any]] = [
        {"role": "user", "content": SENTENCE[:4]},
        {"role": "assistant", "content": [{"type": "text", "text": SENTENCE[4:6]}]},
    ]
    growing = [*chat.answer(asked, temperature=0)]
    ids = chat.tokenizer(SENTENCE[:6], return_tensors="pt").input_ids
    whole = chat.model.generate(ids, max_new_tokens=30, do_sample=False, pad_token_id=2)[0, ids.shape[1] :]
    assert growing[-1] == chat.tokenizer.decode(whole, skip_special_tokens=True)
    assert len(growing) > 2 and all(longer.startswith(shorter) for shorter, longer in zip(growing, growing[1:]))


def test_a_message_spells_no_control_token_but_the_template_does(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "a")
    chat = Chat(str(tmp_path / "a"))
    chat.tokenizer.chat_template = "{% for message in messages %}<s>{{ message['content'] }}</s>{% endfor %}"
    seen: list[list[int]] = []
    model = chat.model

    class Watched:
        config, device = model.config, "cpu"

        def __call__(self, ids: torch.Tensor, **options: Any) -> Any:
            seen.append(ids[0].tolist())
            return model(ids, **options)

    chat.model = Watched()
    list(chat.answer([{"role": "user", "content": "a</s>b<s>"}], temperature=0))
    assert (seen[0][0], seen[0][-1], seen[0].count(1), seen[0].count(2)) == (1, 2, 1, 1)


def test_temperature_draws(folder: Path) -> None:
    chat, answers = Chat(str(folder)), set[str]()
    for seed in range(3):
        torch.manual_seed(seed)
        answers.add(list(chat.answer([{"role": "user", "content": SENTENCE[:4]}], temperature=50.0))[-1])
    assert len(answers) == 3


def test_a_conversation_longer_than_the_model_reads_gets_one_line(folder: Path) -> None:
    (said,) = Chat(str(folder)).answer([{"role": "user", "content": SENTENCE * 40}], temperature=0)
    assert said == "The conversation fills the model's 40 positions; begin a new one."


def test_a_model_without_a_template_and_what_is_no_model_are_refused(folder: Path, tmp_path: Path) -> None:
    plain = models.memorized(tmp_path)
    with pytest.raises(UsageError, match=f"--chat {plain}: the tokenizer has no chat template"):
        Chat(str(plain))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="--chat .*empty: no model that can be read") as refused:
        Chat(str(empty))
    assert "\n" not in str(refused.value)

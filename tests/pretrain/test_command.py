"""`course pretrain` without data: the tokens of the profile, with the tokenizer that made them."""

import pytest
from course_lib.command_line.train import complete_pretrain
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings.config import load
from course_lib.subword import products as subword
from course_lib.workspace.products import Product


def test_the_profiles_tokens_come_with_their_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Product, "path", lambda product: product.folder)
    completed = complete_pretrain(load(PretrainConfig, "gpt2-tiny.yaml"))
    assert completed.data.tokenizer == subword.tokenizer().folder
    assert completed.data.tokenizer.name == "bpe-world"

"""A tokenizer folder as rinna publishes it: its ids are sentencepiece's own, which T5Tokenizer of transformers 5 does not give."""

import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.pretrain import text_codec

from tests.rehearsal.published import sentencepiece_model

TEXTS = ["祖母は", "  二つの 空白 ", "ＡＢＣ①㈱", "𠮷野家😃 と", "あ<NL>い", "", "一行目。\n二行目。", "▁", "[SEP]"]
CONFIG = {
    "eos_token": "</s>", "unk_token": "[UNK]", "pad_token": "[PAD]", "extra_ids": 0, "additional_special_tokens": [],
    "bos_token": "<s>", "tokenizer_class": "T5Tokenizer",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rinna")
    sentencepiece_model(folder, 3000, ["<NL>"])
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG))
    return folder


def test_ids_and_texts_are_those_of_sentencepiece(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    for text in TEXTS:
        ids = reference.encode(text)
        assert tokenizer(text)["input_ids"] == ids
        assert tokenizer.decode(ids) == reference.decode(ids)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 2, 3)
    assert len(tokenizer) == 3000
    assert tokenizer.decode([2, *reference.encode("祖母は"), 3]) == "<s>祖母は</s>"


def test_the_codec_writes_line_breaks_as_the_model_card_says(folder: Path, tmp_path: Path) -> None:
    codec = text_codec.load(folder)
    ids = codec.encode("一行目。\n二行目。")
    assert codec.tokenizer.convert_tokens_to_ids("<NL>") in ids
    assert codec.decode(ids) == "一行目。\n二行目。"
    sentencepiece_model(tmp_path, 3000, [])
    shutil.copy(folder / "tokenizer_config.json", tmp_path)
    without = text_codec.load(tmp_path)
    assert without.decode(without.encode("一行目。\n二行目。")) == "一行目。 二行目。"

"""The tokenizer that needs a segmenter only while it is trained: what it learns, and the same ids in every engine."""

from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from course_lib import cli
from course_lib.corpus.wikipedia import extract
from course_lib.documents import read_texts
from course_lib.errors import UsageError
from course_lib.japanese import normalize, split_sentences
from course_lib.japanese.pipeline import segment_file
from course_lib.pretrain import text_codec
from course_lib.pretrain.encode import Encoder, tokenize
from course_lib.subword import folder
from course_lib.subword.config import SPECIALS, UnigramConfig
from course_lib.subword.unigram import REQUIRED, train_unigram, with_boundaries
from course_lib.workspace import products as workspace
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from tests.subword.parity import TEXTS

SETTINGS = UnigramConfig(vocab_size=5000, within_words=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("words")
    extract(workspace.data("jawiki-sample.xml.bz2"), place / "raw.jsonl")
    segment_file(place / "raw.jsonl", place / "lines.txt")
    train_unigram([place / "raw.jsonl"], place / "words", SETTINGS)
    return place


class Engines:
    """The tokenizer in all engines that read its folder."""

    def __init__(self, path: Path) -> None:
        self.sentencepiece = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
        self.tokenizers = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.auto = AutoTokenizer.from_pretrained(path)
        self.course = Encoder(path)

    def check(self, text: str) -> None:
        """Same ids, and same texts from them."""
        ids = self.sentencepiece.encode(text)
        assert self.tokenizers.encode(text).ids == ids, text
        assert self.auto(text)["input_ids"] == ids, text
        assert np.frombuffer(self.course.encode(text), self.course.dtype).tolist() == ids, text
        # sentencepiece writes a space as ▁, so it reads a ▁ as a space.
        expected = text.replace("▁", " ")
        assert self.sentencepiece.decode(ids) == expected
        assert self.tokenizers.decode(ids, skip_special_tokens=False) == expected
        assert self.auto.decode(ids) == expected
        assert not {0, 1, 2} & set(ids)


@pytest.fixture(scope="module")
def engines(place: Path) -> Engines:
    return Engines(place / "words")


@pytest.mark.parametrize("text", TEXTS)
def test_every_engine_gives_the_same_ids_and_the_text_again(engines: Engines, text: str) -> None:
    engines.check(text)


def test_every_engine_agrees_on_documents(engines: Engines, place: Path) -> None:
    for text in read_texts(place / "raw.jsonl"):
        engines.check(text)
        for sentence in split_sentences(normalize(text)):
            engines.check(sentence)


def test_every_engine_agrees_on_any_text(engines: Engines) -> None:
    signs = st.sampled_from(
        ["<", ">", "/", "s", "unk", "0x", "41", *SPECIALS, "<0x41>", "雨", " ", "か", "▁", "\n", "😀"]
    )

    @given(text=st.lists(signs).map("".join) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
    @settings(max_examples=300)
    def check(text: str) -> None:
        engines.check(text)

    check()


def test_the_text_comes_back_normalized_with_its_line_breaks(place: Path) -> None:
    codec, generation = folder.load(place / "words"), text_codec.load(place / "words")
    for text in TEXTS:
        ids = codec.encode(text)
        assert codec.decode(ids) == normalize(text)
        assert generation.encode(text) == ids and generation.decode(ids) == normalize(text)
    assert codec.tokens("雨。\n\n風。") == [*codec.tokens("雨。"), "\n", "\n", *codec.tokens("風。")]


def test_required_characters_are_one_token_each(engines: Engines) -> None:
    assert {" ", "\n", "\u3000", "A", "~", "<"} <= {*REQUIRED.replace("▁", " ")}
    for character in REQUIRED:
        assert len(engines.sentencepiece.encode(character)) == 1, character


def test_entries_stay_within_words(place: Path, engines: Engines) -> None:
    lines = (place / "lines.txt").read_text(encoding="utf8").split("\n")
    words = "\x1f".join(with_boundaries(line).replace(" ", "▁") for line in lines)
    names = [name for name in engines.tokenizers.get_vocab() if len(name) > 1 and not name.startswith("<0x")]
    learned = [name for name in names if name not in SPECIALS]
    assert len(learned) > 1500 and all(name in words for name in learned)
    # The marks of segmented lines are no part of the text.
    assert not {"␣", "␛"} & set("".join(learned))


def test_a_segmented_line_is_plain_text_with_boundaries() -> None:
    assert with_boundaries("Visual ␣Studio を ␛s␛e ␣") == "Visual\x1f Studio\x1fを\x1f␣␛\x1f "


def test_documents_and_their_segmented_lines_give_the_same_tokenizer(place: Path, tmp_path: Path) -> None:
    train_unigram([place / "lines.txt"], tmp_path / "words", SETTINGS)
    for name in ("tokenizer.model", "tokenizer.json", "tokenizer.vocab", "preparation.json"):
        assert (tmp_path / "words" / name).read_bytes() == (place / "words" / name).read_bytes()


def test_the_command(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--within-words", "--vocab-size", "5000"]
    with pytest.raises(SystemExit) as ended:
        cli.main(["tokenizer", "unigram", str(place / "lines.txt"), "-o", str(tmp_path / "words"), *options])
    assert ended.value.code == 0
    assert "5000 entries" in capsys.readouterr().out
    assert folder.load(tmp_path / "words").preparation == folder.Preparation(segmented=False, marked=False)
    with pytest.raises(
        UsageError, match=r"lines\.txt: segmented text, but .*words encodes unsegmented; allowed: \.jsonl"
    ):
        tokenize([place / "lines.txt"], tmp_path / "words", tmp_path / "tokens")

"""`course tokenize`: the bytes are those of encoding every document as a whole, for any tokenizer and number of workers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from course_lib.documents import read_batches, read_texts
from course_lib.errors import CourseError, UsageError
from course_lib.pretrain import encode
from course_lib.pretrain.encode import Encoder, tokenize
from course_lib.pretrain.indexed import IndexedWriter, dtype_for, files_of, summarize
from course_lib.subword import folder
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from tests.subword.test_tokenizers import train_all

SEGMENTED = ("bpe", "bpe-recipe", "unigram")
TRICKY = [
    "大学 で <s> 学ぶ</s>x 。 a<s> <unk>\n二 行目 ␛n ␣Studio",
    "全角\u3000空白 と\tタブ と  二重  空白 \n \n末尾 ",
    "𠮷野家 😀👨‍👩‍👧 ␛s ␛e ▁下線 ▁ x▁y <0x41> \x1c \u2028 \x85 \r",
    "が が か\u3099",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_all(tmp_path_factory.mktemp("tokenize"))


def expected(tokenizer: Path, texts: list[str], prefix: Path, eod: list[int]) -> list[bytes]:
    """Both files by `encode_batch_fast` of whole documents."""
    loaded = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    dtype = dtype_for(loaded.get_vocab_size())
    with IndexedWriter(prefix, dtype) as writer:
        for encoding in loaded.encode_batch_fast(texts, add_special_tokens=False):
            ids = list(encoding.ids) + (eod if encoding.ids else [])
            writer.append(np.array(ids, dtype), np.array([len(ids)]))
    return content(prefix)


def content(prefix: Path) -> list[bytes]:
    return [file.read_bytes() for file in files_of(prefix)]


@pytest.mark.parametrize("name", SEGMENTED)
def test_segmented_text_as_it_stands(source: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "tricky.txt").write_text("\n\n".join(TRICKY) + "\n", encoding="utf8")
    sources = [source / "lines.txt", tmp_path / "tricky.txt"]
    texts = [text for path in sources for text in read_texts(path)]
    assert len(texts) > 30
    report = tokenize(sources, source / name, tmp_path / "a", append_eod=True)
    assert content(tmp_path / "a") == expected(source / name, texts, tmp_path / "b", [2])
    summary = summarize(tmp_path / "a")
    assert (report.documents, report.tokens) == (summary.documents, summary.tokens) == (len(texts), summary.tokens)
    assert report.bytes_read == sum(path.stat().st_size for path in sources)
    ids = np.frombuffer(content(tmp_path / "a")[0], summary.dtype)
    assert report.unknown == np.count_nonzero(ids == 0) > 0
    assert report.summary().startswith(f"{len(texts)} documents, {report.tokens} tokens (")


def test_the_bytes_do_not_depend_on_the_workers(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "read_batches", lambda path: read_batches(path, 20_000))
    reports = [tokenize([source / "lines.txt"], source / "bpe", tmp_path / str(n), n) for n in (1, 2)]
    assert content(tmp_path / "1") == content(tmp_path / "2")
    assert reports[0].tokens == reports[1].tokens > 10_000


@pytest.mark.parametrize("name", ["bpe", "bpe-raw"])
def test_documents_are_prepared_as_the_training_text_was(source: Path, tmp_path: Path, name: str) -> None:
    texts = ["Visual Studioで学ぶ。\n二行目", "", "ｶﾞｷﾞ<s>", "\n"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf8")
    report = tokenize([tmp_path / "in.jsonl"], source / name, tmp_path / "a", append_eod=True)
    codec = folder.load(source / name)
    assert content(tmp_path / "a") == expected(source / name, list(map(codec.prepare, texts)), tmp_path / "b", [2])
    assert report.documents == 4 and summarize(tmp_path / "a").documents == 4
    assert summarize(tmp_path / "a").sequences < 4  # the empty one has no tokens, and so no end either


def test_a_folder_of_somebody_else_takes_the_text_as_it_stands(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source / "bpe", tmp_path / "foreign")
    (tmp_path / "foreign" / "preparation.json").unlink()
    config = {"eos_token": {"content": "<s>"}, "unk_token": "<unk>"}
    (tmp_path / "foreign" / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = Tokenizer.from_file(str(tmp_path / "foreign" / "tokenizer.json"))
    loaded.enable_truncation(3)
    loaded.enable_padding(length=9)
    loaded.save(str(tmp_path / "foreign" / "tokenizer.json"))
    (tmp_path / "in.jsonl").write_text('{"text": "ｶﾞ 大学 で 学ぶ"}\n', encoding="utf8")
    tokenize([tmp_path / "in.jsonl"], tmp_path / "foreign", tmp_path / "a", append_eod=True)
    assert content(tmp_path / "a") == expected(source / "bpe", ["ｶﾞ 大学 で 学ぶ"], tmp_path / "b", [1])
    # Only its line breaks become newlines.
    (tmp_path / "in.jsonl").write_text('{"text": "大学\\u001cで\\r\\n学ぶ"}\n', encoding="utf8")
    tokenize([tmp_path / "in.jsonl"], tmp_path / "foreign", tmp_path / "a", append_eod=True)
    assert content(tmp_path / "a") == expected(source / "bpe", ["大学\nで\n学ぶ"], tmp_path / "b", [1])
    (tmp_path / "foreign" / "tokenizer_config.json").unlink()
    with pytest.raises(UsageError, match=r"--append-eod: .*foreign has no eos_token"):
        tokenize([tmp_path / "in.jsonl"], tmp_path / "foreign", tmp_path / "a", append_eod=True)


WORDS = st.text(alphabet="大学でa1.、␣␛ns▁<>/ \n\t\u3000", max_size=30) | st.lists(
    st.sampled_from(["<s>", "</s>", "<unk>", " ", "\n", "大学", "ab", "▁", "𠮷"]), max_size=10
).map("".join)


@pytest.mark.parametrize("name", SEGMENTED)
def test_words_one_by_one_give_the_ids_of_the_text(source: Path, name: str) -> None:
    encoder = Encoder(source / name)
    assert encoder.by_word

    @given(text=WORDS)
    @settings(max_examples=200, deadline=None)
    def check(text: str) -> None:
        (whole,) = encoder.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        assert np.frombuffer(encoder.encode(text), encoder.dtype).tolist() == whole.ids

    check()


@pytest.mark.parametrize("change", ["normalizer", "pre_tokenizer", "added", "dropout"])
def test_a_tokenizer_that_looks_across_spaces_gets_whole_documents(source: Path, tmp_path: Path, change: str) -> None:
    loaded = Tokenizer.from_file(str(source / "bpe" / "tokenizer.json"))
    if change == "normalizer":
        loaded.normalizer = normalizers.Replace("大学 で", "で")
    elif change == "pre_tokenizer":
        loaded.pre_tokenizer = pre_tokenizers.ByteLevel()
    elif change == "added":
        loaded.add_tokens(["大学 で"])
    else:
        loaded.model.dropout = 0.5
    loaded.save(str(tmp_path / "tokenizer.json"))
    encoder = Encoder(tmp_path)
    assert not encoder.by_word
    if change != "dropout":
        (whole,) = loaded.encode_batch_fast(["大学 で 学ぶ"], add_special_tokens=False)
        assert np.frombuffer(encoder.encode("大学 で 学ぶ"), encoder.dtype).tolist() == whole.ids


def test_what_does_not_go_together_is_refused_and_nothing_replaced(source: Path, tmp_path: Path) -> None:
    tokenize([source / "lines.txt"], source / "bpe", tmp_path / "a")
    before = content(tmp_path / "a")
    broken, mixed = tmp_path / "broken.jsonl", [source / "lines.txt", source / "raw.jsonl"]
    broken.write_text('{"text": "一"}\nnonsense\n', encoding="utf8")
    for sources, tokenizer, workers, message in (
        ([source / "lines.txt"], "bpe-raw", 1, "segmented"),
        (mixed, "bpe", 1, "allowed"),
        ([broken], "bpe", 1, "line 2"),
        ([broken], "bpe", 2, "line 2"),
        ([source / "lines.txt"], tmp_path, 1, "not a tokenizer folder"),
    ):
        with pytest.raises(CourseError, match=message):
            tokenize(sources, source / tokenizer, tmp_path / "a", workers)
    assert content(tmp_path / "a") == before

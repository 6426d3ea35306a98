"""A text that spells <s> or <0x41> is text: in the tokenizer's files, in every engine that reads them, and in the course."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from course_lib.errors import CourseError
from course_lib.japanese import normalize, segment
from course_lib.pretrain import text_codec
from course_lib.pretrain.encode import Encoder, tokenize
from course_lib.pretrain.indexed import IndexedDataset
from course_lib.subword import folder
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import SPECIALS, BpeConfig, UnigramConfig
from course_lib.subword.unigram import train_unigram
from course_lib.world.genres import documents
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

# Of the first corpus < and > are no characters, of the second they are, and <s> is frequent.
CORPORA = ("plain", "signs")
KINDS = ("bpe", "unigram", "unigram-no-bytes")
SPELLED = [
    "打ち消し線は<s>文字</s>と書く。終わり。", "<s>", "</s></s>", "<unk>雨<unk>", "a<0x41>b <0xE3><0x81><0x82>", "<<s>>", "鬱<s>魑</s>",
    "雨<", "< s >", "0x41", "<S>", "<s", "s>", "＜ｓ＞", "雨。", "a <b", "<0x4>", "<br>",
]  # fmt: skip


@cache
def texts(corpus: str) -> tuple[str, ...]:
    found = tuple(document.text for document in documents(80, seed=5))
    return found if corpus == "plain" else found + ("記号<s>文字</s>と<b>太字</b>、a<b かつ x>y、 <unk> <0x41>。",) * 40


def train(trained: Path, corpus: str, kind: str, segmented: bool = False) -> Path:
    source, target = trained / f"{corpus}.{'txt' if segmented else 'jsonl'}", trained / f"{corpus}-{kind}"
    if segmented:
        lines = (segment(line, True) for text in texts(corpus) for line in normalize(text).split("\n"))
        source.write_text("\n".join(lines), encoding="utf8")
    else:
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(corpus)), encoding="utf8")
    if kind == "bpe":
        train_bpe([source], target, BpeConfig(vocab_size=900, limit_alphabet=400), False)
    elif kind == "lossy":
        train_bpe([source], target, BpeConfig(vocab_size=700, limit_alphabet=400, lossless=False), False)
    else:
        train_unigram(
            [source],
            target,
            UnigramConfig(vocab_size=700 if kind == "unigram" else 450, byte_fallback=kind == "unigram"),
        )
    return target


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trained = tmp_path_factory.mktemp("control")
    for corpus in CORPORA:
        for kind in (*KINDS, "lossy"):
            train(trained, corpus, kind)
    for kind in ("bpe", "unigram"):
        (trained / "txt").mkdir(exist_ok=True)
        train(trained / "txt", "signs", kind, segmented=True)
    return trained


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("corpus", CORPORA)
def test_the_files_are_right_in_every_engine(trained: Path, corpus: str, kind: str) -> None:
    path = trained / f"{corpus}-{kind}"
    codec, encoder, generation = folder.load(path), Encoder(path), text_codec.load(path)
    bare, auto = Tokenizer.from_file(str(path / "tokenizer.json")), AutoTokenizer.from_pretrained(path)
    control = {1, 2} if kind == "unigram-no-bytes" else {0, 1, 2}
    for text in SPELLED:
        prepared, ids = codec.prepare(text), codec.encode(text)
        assert not control & set(ids), text
        assert bare.encode(prepared).ids == auto(prepared)["input_ids"] == generation.encode(text) == ids
        assert np.frombuffer(encoder.encode(prepared), encoder.dtype).tolist() == ids
        if kind.startswith("unigram"):
            processor = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
            assert processor.encode(prepared) == ids, text
        if kind != "unigram-no-bytes":
            assert codec.decode(ids) == generation.decode(ids) == normalize(text)
            assert auto.decode([1, *ids, 2], skip_special_tokens=True) == normalize(text)
    assert (auto.unk_token_id, auto.bos_token_id, auto.eos_token_id, auto.pad_token_id) == (0, 1, 2, 2)
    assert sorted(auto.all_special_ids) == [0, 1, 2] and len(auto) == bare.get_vocab_size()


@pytest.mark.parametrize("name", ["txt/signs-bpe", "txt/signs-unigram", "signs-lossy", "plain-lossy"])
def test_the_other_tokenizers_find_no_control_token_in_raw_text(trained: Path, name: str) -> None:
    path = trained / name
    codec, generation = folder.load(path), text_codec.load(path)
    for text in SPELLED:
        ids = codec.encode(text)
        assert not {1, 2} & set(ids) and generation.encode(text) == ids, text
        if "lossy" not in name:
            assert codec.decode(ids) == normalize(text)
    if "lossy" in name:
        assert AutoTokenizer.from_pretrained(path)("<s>雨</s>")["input_ids"] == codec.encode("<s>雨</s>")


def test_a_tokenizer_trained_by_an_earlier_version_is_right_in_the_course(trained: Path, tmp_path: Path) -> None:
    """Its file registers the special tokens, gives them the score 0 and sets nothing apart, as `../shared/model`."""
    new = trained / "plain-unigram"
    for path in new.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = json.loads((new / "tokenizer.json").read_text(encoding="utf8"))
    content["pre_tokenizer"] = content["pre_tokenizer"]["pretokenizers"][0]
    content["model"]["vocab"][:3] = [[name, 0.0] for name in SPECIALS]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"] = [{"id": i, "content": name, "special": True} | flags for i, name in enumerate(SPECIALS)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    config = json.loads((new / "tokenizer_config.json").read_text())
    del config["split_special_tokens"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    bare, old, codec = Tokenizer.from_file(str(tmp_path / "tokenizer.json")), folder.load(tmp_path), folder.load(new)
    assert 1 in bare.encode("雨<s>").ids
    for text in SPELLED:
        ids = old.encode(text)
        assert not {0, 1, 2} & set(ids) and old.decode(ids) == normalize(text), text
    for text in texts("signs"):
        if "<" not in text:
            assert old.encode(text) == codec.encode(text) == bare.encode(normalize(text)).ids


SIGNS = st.lists(
    st.sampled_from(["<", ">", "/", "s", "unk", "0x", "41", *SPECIALS, "<0x41>", "雨", " ", "か", "_", "▁"])
)


@pytest.mark.parametrize("name", ["plain-bpe", "plain-unigram", "signs-bpe", "signs-unigram", "txt/signs-unigram"])
def test_texts_of_such_signs_come_back(trained: Path, name: str) -> None:
    codec = folder.load(trained / name)

    @given(parts=SIGNS)
    @settings(max_examples=80, deadline=None)
    def check(parts: list[str]) -> None:
        text = "".join(parts)
        ids = codec.encode(text)
        assert not {0, 1, 2} & set(ids)
        assert codec.decode(ids) == normalize(text)

    check()


@pytest.mark.parametrize("name", ["plain-bpe", "signs-unigram", "plain-lossy", "txt/signs-bpe"])
def test_a_document_has_its_only_end_at_its_end(trained: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in SPELLED), encoding="utf8")
    tokenize([tmp_path / "in.jsonl"], trained / name, tmp_path / "out", append_eod=True)
    data, codec = IndexedDataset(tmp_path / "out"), folder.load(trained / name)
    for i, text in enumerate(SPELLED):
        assert data.get(i).tolist() == [*codec.encode(text), 2]
        assert 1 not in data.get(i) and data.get(i).tolist().count(2) == 1


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_all_lines_too_long(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / f"a.{suffix}"
    lines = ["日本 語 の 文 です " * 9, "日本 語 です " * 7]
    source.write_text("\n".join(lines if suffix == "txt" else [json.dumps({"text": line}) for line in lines]) + "\n")
    shortest = 126 if suffix == "txt" else 105
    message = (
        f"max_sentence_length: 100 leaves no line of {source}: the shortest one has {shortest} bytes; "
        f"allowed: {shortest} or more, or shorter lines"
    )
    with pytest.raises(CourseError) as caught:
        train_unigram([source], tmp_path / "out", UnigramConfig(vocab_size=300, max_sentence_length=100))
    assert str(caught.value) == message
    assert not (tmp_path / "out").exists()


def test_a_sample_of_lines_too_long(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(["あ" * 100] * 50 + ["い"]) + "\n", encoding="utf8")
    settings = UnigramConfig(vocab_size=300, max_sentence_length=90, input_sentence_size=2)
    with pytest.raises(
        CourseError, match="max_sentence_length: 90 leaves no line of .*: the shortest one has 300 bytes"
    ):
        train_unigram([tmp_path / "a.txt"], tmp_path / "out", settings)


def test_lines_with_the_mark_of_sentencepiece(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("▅▅\n▅ 雨\n", encoding="utf8")
    with pytest.raises(CourseError, match=r"a\.txt: no text to train on: sentencepiece leaves out lines with ▅"):
        train_unigram([tmp_path / "a.txt"], tmp_path / "out", UnigramConfig(vocab_size=300))


def test_a_line_as_long_as_allowed_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("日本 語 です " * 7 + "\n", encoding="utf8")
    config = UnigramConfig(vocab_size=265, max_sentence_length=140)
    with pytest.raises(CourseError, match="vocab_size: 265 is"):
        train_unigram([tmp_path / "a.txt"], tmp_path / "out", config)

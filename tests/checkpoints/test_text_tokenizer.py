"""One tokenizer, everywhere the same ids: those of tokenizer.json and of sentencepiece, and no control token in a text."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from course_lib.checkpoints import model_folder, text_tokenizer, tokenizer_settings
from course_lib.errors import CourseError
from course_lib.pretrain import text_codec
from course_lib.pretrain.encode import Encoder, tokenize
from course_lib.pretrain.indexed import IndexedDataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from tests.checkpoints import tokenizer_folders as folders
from tests.checkpoints.tokenizer_folders import KINDS, NAMES, RINNA

TEXTS = [
    "ある町に健太という男の子がいました。", "ＡＢＣ　１２３年", "2024年11月 29日", "が か\u3099 ガ", "Windows と Python", "  a  b ",
    "二行の\n文", "鬱😃", "",
]  # fmt: skip
CLASSES = (
    None, "GPT2Tokenizer", "GPTNeoXTokenizer", "GPTNeoXTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast", "T5Tokenizer",
    "T5TokenizerFast", "AlbertTokenizer", "PreTrainedTokenizerFast", "PreTrainedTokenizer", "NoSuchTokenizer",
)  # fmt: skip
SPELLED = [
    "<s>",
    "</s>",
    "文字<s>ある</s>",
    "<unk>",
    "a<s></s>b",
    "<<s>>",
    "＜ｓ＞",
    "雨 <s> 風",
    "<0x41>",
    "あ<0xE3><0x81>い",
]


def everywhere(folder: Path) -> list[Callable[[str], list[int]]]:
    """The ways from a text to its ids: of generation, evaluation and prefixes, of `course tokenize`, of the loader."""
    encoder = Encoder(folder)

    def tokenized(text: str) -> list[int]:
        return np.frombuffer(encoder.encode(encoder.prepared(text)), encoder.dtype).tolist()

    return [text_codec.load(folder).encode, tokenized, text_tokenizer.load(folder).encode]


@pytest.mark.parametrize("tokenizer_class", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_json_is_read_as_it_is_whatever_class_is_named(
    tmp_path: Path, kind: str, tokenizer_class: str | None
) -> None:
    folder = folders.json_folder(tmp_path / "a", kind, tokenizer_class)
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for encode in everywhere(folder):
        for text in TEXTS:
            assert encode(text) == plain.encode(text, add_special_tokens=False).ids, text
    tokenizer = model_folder.load_tokenizer(folder)
    assert (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert len(tokenizer) == plain.get_vocab_size()


@pytest.mark.parametrize("tokenizer_class", [*CLASSES, "DebertaV2Tokenizer", "XLNetTokenizer", "CamembertTokenizer"])
def test_sentencepiece_models_are_read_as_they_are_whatever_class_is_named(
    tmp_path: Path, tokenizer_class: str | None
) -> None:
    folder = folders.spiece_folder(tmp_path / "a", tokenizer_class, RINNA | {"legacy": False, "add_prefix_space": True})
    reference = sentencepiece.SentencePieceProcessor(model_proto=folders.spiece())
    for encode in everywhere(folder):
        for text in [*TEXTS, *SPELLED, "[SEP]"]:
            assert encode(text) == reference.encode(text), text
    codec = text_codec.load(folder)
    found = codec.tokenizer
    assert (found.unk_token_id, found.bos_token_id, found.eos_token_id, found.pad_token_id) == (0, 1, 2, 3)
    assert [codec.decode(codec.encode(text)) for text in ("<s>雨</s>", "[SEP]か")] == ["<s>雨</s>", "[SEP]か"]
    assert codec.decode([1, *codec.encode("雨"), 2]) == "雨"


@pytest.mark.parametrize("name", ["spiece.model", "tokenizer.model", "spm.model", "sentencepiece.bpe.model"])
def test_a_folder_with_a_sentencepiece_model_alone(tmp_path: Path, name: str) -> None:
    folder = folders.spiece_folder(tmp_path / "a", None, None, name)
    reference = sentencepiece.SentencePieceProcessor(model_proto=folders.spiece())
    for encode in everywhere(folder):
        assert [encode(text) for text in TEXTS] == list(map(reference.encode, TEXTS))
    found = model_folder.load_tokenizer(folder)
    assert (len(found), found.unk_token_id, found.bos_token_id, found.eos_token_id) == (800, 0, 1, 2)


@pytest.mark.parametrize(("given", "lower"), [(True, True), (False, False), (None, False)])
def test_text_is_lower_case_where_the_settings_say_so(tmp_path: Path, given: bool | None, lower: bool) -> None:
    more = {} if given is None else {"do_lower_case": given}
    reference = sentencepiece.SentencePieceProcessor(model_proto=folders.spiece())
    plain = Tokenizer.from_str(folders.of_kind("bpe-metaspace"))
    text = "Windows と ＰＹＴＨＯＮ は NASA ΑΣ"
    lowered = "windows と ｐｙｔｈｏｎ は nasa ασ" if lower else text
    for encode in everywhere(folders.spiece_folder(tmp_path / "spm", "T5Tokenizer", RINNA | more)):
        assert encode(text) == reference.encode(lowered)
    for encode in everywhere(folders.json_folder(tmp_path / "json", "bpe-metaspace", "AlbertTokenizer", **more)):
        assert encode(text) == plain.encode(lowered, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_control_tokens_in_a_text_are_text(tmp_path: Path, kind: str) -> None:
    """Those of the model, those that a user added, and one that only tokenizer_config.json calls special."""
    plain = Tokenizer.from_str(folders.of_kind(kind))
    plain.add_special_tokens(["[NEW]", AddedToken("<|im_end|>", normalized=True, special=True)])
    plain.add_tokens(["[OWN]"])
    folder = folders.json_folder(tmp_path / "a", kind, "LlamaTokenizer", pad_token="[OWN]")
    plain.save(str(folder / "tokenizer.json"))
    names = [*NAMES.values(), "[NEW]", "<|im_end|>", "[OWN]"]
    control = {plain.token_to_id(name) for name in names} - {0}
    for encode in everywhere(folder):
        for name in names:
            for text in (name, f"雨{name}か", f"a {name} b", name * 2, f"<{name}>"):
                assert not control & set(encode(text)), text
    codec = text_codec.load(folder)
    if kind in ("unigram-bytes", "bpe-byte-level", "bpe-digits"):
        for text in [*names, *(f"雨{name}か" for name in names), "<0x41>", "雨<0xE3>"]:
            ids = codec.encode(text)
            assert codec.decode(ids) == text
            assert codec.decode([1, *ids, 2]) == text


def test_added_tokens_that_are_not_special_stay_tokens(tmp_path: Path) -> None:
    plain = Tokenizer.from_str(folders.of_kind("bpe-metaspace"))
    plain.add_tokens(["[名前]"])
    folder = folders.json_folder(tmp_path / "a", "bpe-metaspace")
    plain.save(str(folder / "tokenizer.json"))
    other = folders.spiece_folder(tmp_path / "b", "T5Tokenizer", RINNA)
    (other / "added_tokens.json").write_text(json.dumps({"[名前]": 800}))
    for encode in everywhere(folder):
        assert encode("雨[名前]か") == plain.encode("雨[名前]か", add_special_tokens=False).ids
        assert plain.token_to_id("[名前]") in encode("雨[名前]か")
    for encode in everywhere(other):
        assert encode("雨[名前]か").count(800) == 1


@pytest.mark.parametrize("special", [True, False])
def test_the_line_break_of_rinna_stays_a_token(tmp_path: Path, special: bool) -> None:
    plain = Tokenizer.from_str(folders.of_kind("unigram-bytes"))
    plain.add_tokens([AddedToken("<NL>", special=special, normalized=False)])
    folder = folders.json_folder(tmp_path / "a", "unigram-bytes")
    plain.save(str(folder / "tokenizer.json"))
    for encode in everywhere(folder):
        ids = encode("一行\n<s>二行")
        assert [plain.id_to_token(i) for i in ids].count("<NL>") == 1 and 1 not in ids


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> text_codec.TextCodec:
    return text_codec.load(folders.json_folder(tmp_path_factory.mktemp("bytes"), "unigram-bytes", "T5Tokenizer"))


SIGNS = st.lists(
    st.sampled_from(["<", ">", "/", "s", "unk", "0x", "41", "E3", "<s>", "</s>", "<unk>", "<0x41>", "雨", " か"])
)


@given(parts=SIGNS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_texts_of_such_signs_come_back(codec: text_codec.TextCodec, parts: list[str]) -> None:
    text = "雨" + "".join(parts)
    ids = codec.encode(text)
    assert not {0, 1, 2} & set(ids)
    assert codec.decode(ids) == text


def test_a_sentencepiece_folder_tokenizes_a_corpus(tmp_path: Path) -> None:
    folder = folders.spiece_folder(tmp_path / "a", "T5Tokenizer", RINNA | {"do_lower_case": True})
    reference = sentencepiece.SentencePieceProcessor(model_proto=folders.spiece())
    texts = ["雨<s>です。\nNASA", "</s>"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenize([tmp_path / "in.jsonl"], folder, tmp_path / "out", append_eod=True)
    data = IndexedDataset(tmp_path / "out")
    assert [data.get(i).tolist() for i in range(2)] == [[*reference.encode(text.lower()), 2] for text in texts]


def test_special_tokens_that_only_the_model_names(tmp_path: Path) -> None:
    """As in OpenAI's GPT-2, whose tokenizer_config.json has a length only."""
    folder = folders.json_folder(tmp_path / "a", "bpe-byte-level")
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1024}')
    assert model_folder.load_tokenizer(folder).eos_token == "</s>"
    assert text_tokenizer.load(folder).special_ids == {"bos_token": None, "eos_token": 2, "unk_token": None}
    (folder / "tokenizer_config.json").write_text('{"eos_token": null}')
    assert model_folder.load_tokenizer(folder).eos_token is None
    assert text_tokenizer.load(folder).special_ids["eos_token"] is None


@pytest.mark.parametrize(
    ("name", "content"), [("vocab.txt", b"a\nb\n"), ("spiece.model", b"not a model"), ("tokenizer.model", b"")]
)
def test_a_folder_whose_vocabulary_nobody_reads_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "config.json").write_text(json.dumps(folders.MODEL))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CourseError, match=str(tmp_path)) as caught:
        text_codec.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_differences_that_matter_to_a_run(tmp_path: Path) -> None:
    one = folders.json_folder(tmp_path / "one", "bpe-byte-level", model_max_length=64)
    same = folders.json_folder(
        tmp_path / "same", "bpe-byte-level", "GPT2Tokenizer", model_max_length=128, chat_template="x"
    )
    other = folders.json_folder(tmp_path / "other", "bpe-digits")
    names = folders.json_folder(tmp_path / "names", "bpe-byte-level", eos_token="<s>")
    more = folders.json_folder(tmp_path / "more", "bpe-byte-level")
    (more / "preparation.json").write_text("{}")
    found = [tokenizer_settings.difference(one, each) for each in (same, other, names, more)]
    assert found == [None, "tokenizer.json", "tokenizer_config.json", "preparation.json"]

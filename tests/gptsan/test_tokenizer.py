import json
import pickle
from pathlib import Path

import pytest
from course_lib.errors import CourseError
from course_lib.gptsan import swe
from course_lib.gptsan.cleaning import clean
from course_lib.gptsan.tokenizer import GPTSanTokenizer, load_tokenizer
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.gptsan.handmade import EMOJI, ENTRIES, SHOWN, ids_of, is_lossless, slow_encode, write

ENCODING = swe.SubwordEncoding(ENTRIES, EMOJI, SHOWN)
IDS = ids_of(ENTRIES)
SIGNS = "　—−ǀ‖¡×゛½˙\u0300☃⛄漢字é\x00\r\n\t <>|\ufe0f\u20e3"
PIECES = [*IDS, *EMOJI, *SIGNS, "<B", "R>", "<|", "byte1|>", "\r\n", "😀😁"]
TEXTS = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"])).map("".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("handmade"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> GPTSanTokenizer:
    return load_tokenizer(folder)


def named(*tokens: str) -> list[int]:
    return [IDS[token] for token in tokens]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("ている", ["てい", "る"]),  # the smaller id, not the longer entry
        ("大學生", ["大", "学生"]),  # a spelling of the same entry
        ("a b　", ["a", "<SP>", "b", "<SP>"]),
        ("<BR><BR", ["<BR>", "<", "BR"]),  # the longest special at once; a broken one letter by letter
        ("<a<", ["<", "a", "<"]),  # two characters from < on are no special: the smaller id
        ("<|q|><|q|", ["<|q|>", "<|q", "|"]),
        ("漢", ["<|byte230|>", "<|byte188|>", "<|byte162|>"]),
        ("¡˙☃ǃ‖", ["<KIGOU>", "<KIGOU>", "<U2000U2BFF>", "<KIGOU>", "<U2000U2BFF>"]),
        ("🐈‍⬛🐯(^_^)1️⃣", ["<|emoji4|>", "<|emoji4|>", "<|emoji12|>", "<|emoji10|>"]),
    ],
)
def test_rules(text: str, tokens: list[str]) -> None:
    assert ENCODING.encode_text(text) == named(*tokens)


@given(TEXTS)
@example("<a<SP><|emoji")
@example("".join(map(chr, [0xA0, 0xA1, 0xBF, 0xC0, 0x1BF, 0x1C0, 0x1C3, 0x1C4, 0x2B8, 0x2B9, 0x362, 0x363])))
@example("".join(map(chr, [0x1FFF, 0x2000, 0x2BFF, 0x2C00])))
def test_same_ids_as_the_rules_told_slowly(text: str) -> None:
    assert ENCODING.encode_text(text) == slow_encode(text)


@given(TEXTS.filter(lambda text: is_lossless(text, ENCODING)))
def test_decoding_inverts_encoding(text: str) -> None:
    assert ENCODING.decode(ENCODING.encode_text(text)) == text


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("慶應", "慶応"), ("☃½", "‖ǀ"), ("🐈", "🐯"), ("❤️", "❤"), ("　", " "), ("\r\n\r", "\n\n"), ("—−", "ーー"), ("<SP>", " "),
        ("<|endoftext|>", ""), ("<|byte227|>", "�"), ("\ud83d", "���"), ("犬", "犬"),
    ],
)  # fmt: skip
def test_where_it_does_not(text: str, back: str) -> None:
    assert ENCODING.decode(ENCODING.encode_text(text)) == back
    assert text == "犬" or not is_lossless(text, ENCODING)


def test_decoding_bags_bytes_and_classes() -> None:
    bag, a, e3 = "<|bagoftoken|>", "a", "<|byte227|>"
    assert ENCODING.decode(named(a, bag, "b")) == "aaab"  # three, as the original generates
    assert ENCODING.decode(named(bag, a, bag, bag)) == "aaaaa"
    assert ENCODING.decode(named(e3, "<|byte129|>", "<|byte130|>", e3, a)) == "あ�a"
    assert ENCODING.decode(named("<BLOCK>", "<KIGOU>", "<U2000U2BFF>", "<URL>", "<|emoji4|>")) == "▀ǀ‖<URL>🐯"
    with pytest.raises(CourseError, match=f"id {len(ENTRIES)}: not in a vocabulary"):
        ENCODING.decode([len(ENTRIES)])


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [  # as the original's clean_text gives them
        ("見よhttps://a.jp/x?y=1、", "見よ<URL>、"),
        ("a.b@c.d.e1@f", "<EMAIL><EMAIL>"),
        ("03-1234-5678", "<TEL>"),
        ("2020年1月2日(木)", "<DATE>"),
        ("1/2と12月31日10時", "<DATE>と<DATE>時"),
        ("1,000円と12,345,678円(税込)", "<PRICE>と<PRICE>"),
        ("3億2千万円と5千ドル", "<PRICE>と<PRICE>"),
        ("10,00円 円 １２円", "10,<PRICE> <PRICE> １２<PRICE>"),
        ("─│▀<BLOCK>■═", "<BLOCK>■<BLOCK>"),
    ],
)
def test_cleaning(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert ENCODING.encode_text(text, clean=True) == ENCODING.encode_text(cleaned)


def test_cleaning_takes_no_powers_of_time() -> None:
    for text in ("123,4" * 20_000, "1," * 3_000, "a." * 100_000, "千" * 3_000, "2020/" * 3_000):
        clean(text)  # the original would not come back


def test_prefix_and_types(tokenizer: GPTSanTokenizer) -> None:
    sot, seg, sep = tokenizer.swe.sot, tokenizer.swe.seg, tokenizer.swe.sep
    plain = tokenizer("大学です")
    assert plain["input_ids"] == [sot, seg, *named("大", "学", "です")]
    assert plain["token_type_ids"] == [1, 0, 0, 0, 0]
    pair = tokenizer("です", prefix_text="大学")
    assert pair["input_ids"] == [sot, *named("大", "学"), seg, *named("です")]
    assert pair["token_type_ids"] == [1, 1, 1, 0, 0]
    assert tokenizer.encode("です", prefix_text="大学") == tokenizer("大学", "です")["input_ids"] == pair["input_ids"]
    batch = tokenizer([["大学", "です"], ["", "る"]], padding=True)  # the port took lists for two texts
    assert batch["input_ids"] == [pair["input_ids"], [sep, sep, sot, seg, *named("る")]]
    assert batch["token_type_ids"] == [[1, 1, 1, 0, 0], [0, 0, 1, 0, 0]]
    assert batch["attention_mask"] == [[1] * 5, [0, 0, 1, 1, 1]]
    assert tokenizer.batch_decode(batch["input_ids"]) == ["大学です", "る"]
    assert tokenizer("大学です", max_length=4, truncation=True)["input_ids"] == plain["input_ids"][:4]


@given(TEXTS)
def test_the_class_encodes_as_the_bare_algorithm(tokenizer: GPTSanTokenizer, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == tokenizer.swe.encode_text(text)
    assert tokenizer.decode(ids) == ENCODING.decode(ids)


def test_every_id_has_a_name_of_its_own(tokenizer: GPTSanTokenizer) -> None:
    # The port counts lines that stand twice once, and an added token gets SEG's id.
    everything = list(range(len(ENTRIES)))
    assert len(tokenizer) == tokenizer.vocab_size == len(ENTRIES)
    assert tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(everything)) == everything
    assert tokenizer.decode([ENTRIES.index("犬")]) == "犬"
    changed = pickle.loads(pickle.dumps(tokenizer))
    changed.add_tokens(["[MASK]"])
    assert changed.decode(changed("大[MASK]学")["input_ids"]) == "大[MASK]学"
    assert changed.convert_tokens_to_ids("[MASK]") == len(ENTRIES)


def test_saved_and_found_by_the_auto_class(tokenizer: GPTSanTokenizer, folder: Path, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    config = tmp_path / "tokenizer_config.json"
    for name in ("GPTSanTokenizer", "GPTSanJapaneseTokenizer"):  # ours, and what the published folder says
        content = json.loads(config.read_text()) | {"tokenizer_class": name, "do_clean_text": True}
        config.write_text(json.dumps(content))
        again = AutoTokenizer.from_pretrained(tmp_path)
        assert isinstance(again, GPTSanTokenizer)
        assert again("大1/2")["input_ids"][2:] == named("大", "<DATE>")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", None, "vocab.txt: no such file"),
        ("vocab.txt", b"a\n<BR>", "vocab.txt: 284 special entries are missing, the first is <SP>"),
        ("emoji.json", b"{", "emoji.json: not readable as JSON"),
        ("emoji.json", b'{"emoji": {}}', 'emoji.json: expected "emoji"'),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    damaged = write(tmp_path / "folder") / name
    damaged.unlink(missing_ok=True)
    if content is not None:
        damaged.write_bytes(content)
    with pytest.raises(CourseError) as caught:
        load_tokenizer(tmp_path / "folder")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)

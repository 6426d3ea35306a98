"""Training, the folder, and losslessness, on the bundled encyclopaedia."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
from course_lib.corpus.wikipedia import extract
from course_lib.errors import CourseError, UsageError
from course_lib.japanese import desegment, normalize
from course_lib.japanese.config import SegmentConfig
from course_lib.japanese.pipeline import segment_file
from course_lib.subword import folder
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import SPECIALS, BpeConfig, UnigramConfig
from course_lib.subword.folder import Codec
from course_lib.subword.text import alphabet, drawn, sentences
from course_lib.subword.unigram import train_unigram
from course_lib.workspace import products as workspace
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

BPE = BpeConfig(vocab_size=5000, limit_alphabet=3500)
UNIGRAM = UnigramConfig(vocab_size=5000)
UNIGRAM_WORDS = UnigramConfig(vocab_size=5000, within_words=True)
NAMES = ("bpe", "bpe-raw", "bpe-no-bytes", "bpe-recipe", "unigram", "unigram-raw", "unigram-words")
MARKED = ("bpe", "bpe-raw", "unigram")
LOSSLESS = [name for name in NAMES if name not in ("bpe-recipe", "bpe-no-bytes")]


def test_a_tokenizer_does_not_replace_the_folder_of_its_text(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "lines.txt").write_text("日本 語 です\n")
    with pytest.raises(UsageError, match="is the input .*lines.txt, holds it"):
        train_bpe([tmp_path / "lines.txt"], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", "lines.txt"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_all(tmp_path_factory.mktemp("tokenizers"))


def train_all(place: Path) -> Path:
    """Train the tokenizers NAMES in a folder, on the texts raw.jsonl, lines.txt and plain.txt in it."""
    raw, lines, plain = place / "raw.jsonl", place / "lines.txt", place / "plain.txt"
    extract(workspace.data("jawiki-sample.xml.bz2"), raw)
    segment_file(raw, lines)
    segment_file(raw, plain, SegmentConfig(mark_spaces=False))
    train_bpe([lines], place / "bpe", BPE, False)
    train_bpe([raw], place / "bpe-raw", BPE, False)
    no_bytes = BpeConfig(vocab_size=4000, limit_alphabet=3500, byte_fallback=False)
    train_bpe([lines], place / "bpe-no-bytes", no_bytes, False)
    recipe = BpeConfig(vocab_size=4000, limit_alphabet=1500, lossless=False, byte_fallback=False)
    train_bpe([plain], place / "bpe-recipe", recipe, False)
    train_unigram([lines], place / "unigram", UNIGRAM)
    train_unigram([raw], place / "unigram-raw", UNIGRAM)
    train_unigram([lines], place / "unigram-words", UNIGRAM_WORDS)
    return place


def test_training_is_silent(place: Path, tmp_path: Path) -> None:
    """sentencepiece writes 300 lines to a terminal."""
    terminal, end = os.openpty()
    arguments = [str(place / "lines.txt"), "-o", str(tmp_path / "out"), "--set", "vocab_size=5000"]
    command = [sys.executable, "-m", "course_lib.cli", "tokenizer", "unigram", *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=end, check=True)
    os.close(end)
    assert os.read(terminal, 1 << 16).count(b"\n") <= 1


@pytest.fixture(scope="module")
def codecs(place: Path) -> dict[str, Codec]:
    return {name: folder.load(place / name) for name in NAMES}


TEXTS = [
    "Visual Studio Codeで自然言語処理を勉強している。It's 3.14 (yes), OK!",
    "😀👨‍👩‍👧 𠮷野家 ␣␛ ␛s <s> </s> <0x41> <unk>",
    "  a  b\tc\u00a0d\u3000e ",
    "␣0<s>a</s>b <unk>c",
    "二行の\n文、\n\n空行も",
    "",
]


ANY_TEXT = st.text(max_size=40) | st.text(alphabet="a学 生␣␛nse▁_<>/\t\n", max_size=20)


@given(text=ANY_TEXT)
@example(text="".join(TEXTS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", LOSSLESS)
def test_any_text_comes_back(codecs: dict[str, Codec], name: str, text: str) -> None:
    assert codecs[name].decode(codecs[name].encode(text)) == normalize(text)


@given(text=ANY_TEXT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", MARKED)
def test_the_first_tokens_are_the_beginning_of_the_text(codecs: dict[str, Codec], name: str, text: str) -> None:
    """However a text is cut, nothing of a mark is shown; only half a character is, as U+FFFD."""
    ids, whole = codecs[name].encode(text), normalize(text)
    for number in range(len(ids)):
        assert whole.startswith(codecs[name].decode(ids[:number]).rstrip("\N{REPLACEMENT CHARACTER}"))


@pytest.mark.parametrize("name", MARKED)
def test_a_mark_is_one_token(codecs: dict[str, Codec], name: str) -> None:
    codec = codecs[name]
    tokens = codec.tokens("雨␛と␣です。")
    assert {"␛e", "␛s"} <= set(tokens) and not {"␛", "e", "s"} & set(tokens)
    assert [codec.tokens("雨。\n\n風").count(token) for token in ("␛n", "␛", "n")] == [2, 0, 0]
    assert len(codec.encode("雨。\n\n風")) == len(codec.encode("雨。\n風")) + 1


@pytest.mark.parametrize("name", NAMES)
def test_specials_are_the_first_ids_and_sizes_are_as_asked(codecs: dict[str, Codec], name: str) -> None:
    tokenizer = codecs[name].tokenizer
    assert [tokenizer.token_to_id(token) for token in SPECIALS] == [0, 1, 2]
    assert tokenizer.get_vocab_size() == (4000 if name in ("bpe-recipe", "bpe-no-bytes") else 5000)


@pytest.mark.parametrize("name", ["unigram", "unigram-raw", "unigram-words"])
def test_same_ids_as_sentencepiece(place: Path, codecs: dict[str, Codec], name: str) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(place / name / "tokenizer.model"))
    assert (place / name / "tokenizer.vocab").exists()
    lines = (place / "lines.txt").read_text(encoding="utf8").split("\n")[:600]
    for text in [*map(desegment, lines), *TEXTS]:
        prepared = codecs[name].prepare(text)
        # An added token of transformers is plain text to sentencepiece.
        if not any(token in prepared for token in SPECIALS):
            assert codecs[name].encode(text) == processor.encode(prepared), text


@pytest.mark.parametrize("name", ["bpe", "bpe-recipe", "unigram-raw", "unigram-words"])
def test_auto_tokenizer_loads_the_folder(place: Path, codecs: dict[str, Codec], name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(place / name)
    specials = (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert specials == (0, 1, 2, 2)
    text = "大学で学ぶ、Visual Studio Code ."
    ids = tokenizer(codecs[name].prepare(text))["input_ids"]
    assert ids == codecs[name].encode(text)
    if name in LOSSLESS:
        assert tokenizer.decode(ids) == normalize(text)
    padded = tokenizer([codecs[name].prepare("雨。"), codecs[name].prepare(text)], padding=True)
    assert len(set(map(len, padded["input_ids"]))) == 1 and padded["input_ids"][0][-1] == 2


@pytest.mark.parametrize("train", [train_bpe, train_unigram])
def test_a_vocabulary_too_large_says_what_is_possible(place: Path, tmp_path: Path, train) -> None:
    config = BpeConfig if train is train_bpe else UnigramConfig
    with pytest.raises(CourseError, match=r"vocab_size: 900000 .*allowed: up to (\d+)") as caught:
        train([place / "lines.txt"], tmp_path / "out", config(vocab_size=900_000))
    assert os.listdir(tmp_path) == []
    possible = int(str(caught.value).split(" ")[-1])
    assert train([place / "lines.txt"], tmp_path / "out", config(vocab_size=possible))["vocabulary"] == possible


def test_a_vocabulary_too_small_says_so(place: Path, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"vocab_size: 300 is too small"):
        train_unigram([place / "lines.txt"], tmp_path / "out", UnigramConfig(vocab_size=300))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("train", [train_bpe, train_unigram])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("a.jsonl", b'{"text": ""}\n', "no text"), ("a.csv", b"x", ".jsonl"), ("a.txt", b"\xe9\x9b\nb", "not UTF-8")],
)
def test_a_bad_corpus_is_named(tmp_path: Path, train, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CourseError, match=message) as caught:
        train([tmp_path / name], tmp_path / "out")
    assert "\n" not in str(caught.value) and os.listdir(tmp_path) == [name]


def test_lines_too_long_for_sentencepiece_are_counted(tmp_path: Path, place: Path) -> None:
    lines = (place / "lines.txt").read_text(encoding="utf8").split("\n")[:2000]
    texts = [line for line in lines if len(line.encode()) < 300] + ["あ" * 200] * 20
    (tmp_path / "a.txt").write_text("\n".join(texts), encoding="utf8")
    config = UnigramConfig(vocab_size=2500, max_sentence_length=400)
    assert train_unigram([tmp_path / "a.txt"], tmp_path / "out", config)["lines left out"] == 20


TRAIN_ALL = """
import sys
from pathlib import Path
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import BpeConfig, UnigramConfig
from course_lib.subword.unigram import train_unigram
lines, raw, target = map(Path, sys.argv[1:])
bpe = BpeConfig(vocab_size=3000, limit_alphabet=1000)
train_bpe([lines], target / "bpe", bpe, False)
train_bpe([raw], target / "bpe-raw", bpe, False)
train_unigram([raw], target / "sample", UnigramConfig(vocab_size=3000, input_sentence_size=1500))
"""


def test_the_same_bytes_wherever_a_tokenizer_is_trained(place: Path, tmp_path: Path) -> None:
    """Characters that are equally rare where the alphabet is cut, a sample of the lines, threads, hashes, places."""
    made = []
    for number in ("1", "2"):
        home = tmp_path / ("elsewhere" * int(number))
        home.mkdir()
        sources = [home / "lines.txt", home / "raw.jsonl"]
        for source in sources:
            source.write_bytes((place / source.name).read_bytes())
        environment = os.environ | {"PYTHONHASHSEED": number, "RAYON_NUM_THREADS": number}
        command = [sys.executable, "-c", TRAIN_ALL, *map(str, sources), str(home)]
        subprocess.run(command, check=True, cwd=home, env=environment)
        products = (path for path in home.glob("*/*") if path.is_file())
        made.append({str(path.relative_to(home)): path.read_bytes() for path in products})
    assert len(made[0]) == 3 * 4 + 2 and made[0] == made[1]
    assert [name for name, content in made[0].items() if b"elsewhere" in content or b"/tmp" in content] == []


def test_the_alphabet_is_the_most_frequent_characters_then_the_smaller_code_points(tmp_path: Path, place: Path) -> None:
    lines = (place / "lines.txt").read_text(encoding="utf8")
    counts = Counter(c for c in lines if not c.isspace() and c not in "␣␛")
    order = sorted(counts, key=lambda c: (-counts[c], c))
    sizes = [2, 40, 1000, len(order) // 2, len(order), len(order) + 1]
    # A cut between equally rare characters is what this is about.
    assert any(counts[order[size - 2]] == counts[order[size - 1]] for size in sizes[1:4])
    for size in sizes:
        assert alphabet([place / "lines.txt"], size, "␣", "␛") == sorted({"␣", *order[: size - 1]})
    train_bpe([place / "lines.txt"], tmp_path / "out", BpeConfig(vocab_size=3000, limit_alphabet=1000), False)
    vocabulary = folder.load(tmp_path / "out").tokenizer.get_vocab()
    assert {token for token in vocabulary if len(token) == 1} == {"␣", *order[:999]}


def test_the_recipe_is_what_the_bare_library_trains(place: Path, tmp_path: Path) -> None:
    for source in ("plain.txt", "raw.jsonl"):
        settings = BpeConfig(vocab_size=5000, limit_alphabet=4000, lossless=False, byte_fallback=False)
        train_bpe([place / source], tmp_path / "out", settings, False)
        bare = Tokenizer(models.BPE(unk_token="<unk>"))
        bare.pre_tokenizer = pre_tokenizers.Whitespace()
        specials = list(SPECIALS)
        trainer = trainers.BpeTrainer(vocab_size=5000, min_frequency=1, special_tokens=specials, show_progress=False)
        if source == "plain.txt":
            bare.train([str(place / source)], trainer)
        else:
            bare.train_from_iterator(sentences([place / source]), trainer)
        assert (tmp_path / "out" / "tokenizer.json").read_text(encoding="utf8") == bare.to_str(pretty=True)


def test_bpe_learns_from_a_sample_of_lines(tmp_path: Path) -> None:
    """With a sample of n lines, BPE gives the tokenizer of a file that has just these lines."""
    source, alone = tmp_path / "source.txt", tmp_path / "alone.txt"
    lines = [f"{'山川海空'[i % 4]}に{i}人の{'犬猫鳥'[i % 3]}がいる。" for i in range(400)]
    source.write_text("\n".join(lines) + "\n", encoding="utf8")
    train_bpe([source], tmp_path / "sampled", BpeConfig(vocab_size=310, input_sentence_size=100), show_progress=False)
    sample = list(drawn([source], 400, 100))
    assert len(sample) == 100
    alone.write_text("\n".join(sample) + "\n", encoding="utf8")
    train_bpe([alone], tmp_path / "expected", BpeConfig(vocab_size=310), show_progress=False)
    models = [folder.load(tmp_path / name).tokenizer.to_str() for name in ("sampled", "expected")]
    assert models[0] == models[1]

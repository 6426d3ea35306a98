"""From JSON lines to rows and batches: nothing lost, nothing doubled, the loss where it belongs."""

import json

import pytest
import torch
from course_lib.errors import CourseError, UsageError
from course_lib.prefix import data
from course_lib.prefix.config import DataConfig, PrefixConfig
from course_lib.prefix.run import PrefixRun
from course_lib.prefix.samples import IGNORED, Samples, TokenRow, collate, loss, rows
from course_lib.pretrain import text_codec
from course_lib.settings.config import build
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tests.prefix import bases
from tests.pretrain.models import tokenizer

BEGIN, END = 1, 2


def write(path, documents):
    path.write_text("\n".join(json.dumps(each, ensure_ascii=False) for each in documents) + "\n", encoding="utf8")
    return path


def config(path, **settings):
    return build(DataConfig, {"input": str(path), "dev_size": 0} | settings)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return text_codec.load(tokenizer(tmp_path_factory.mktemp("ours")))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A tokenizer that adds an end of text itself, as T5's does, and knows few characters."""
    folder = tmp_path_factory.mktemp("foreign")
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "今": 3, "日": 4, "は": 5, "雨": 6, "晴": 7, " ": 8}
    found = Tokenizer(models.WordLevel(words, "<unk>"))
    found.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    found.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=found, **names).save_pretrained(folder)
    return text_codec.load(folder)


@given(st.lists(st.text("あいう \n", max_size=30), min_size=1, max_size=4), st.integers(3, 20))
def test_pieces_hold_every_line_once_and_fit(texts, limit):
    for text in texts:
        pieces = list(data.pack(text, "*", limit, lambda text: [ord(letter) for letter in text]))
        found = ["".join(map(chr, piece)) for piece in pieces]
        lines = [line for line in text.splitlines() if line.strip()]
        assert "\n".join(found) == "\n".join(line + "*" for line in lines)  # tails too, no newline before the first
        for piece, follower in zip(found, [*found[1:], None]):
            assert len(piece) <= limit or "\n" not in piece  # longer: a line by itself, whole
            if follower:  # greedy
                assert len(piece) + 1 + len(follower.split("\n")[0]) > limit


def test_a_lone_surrogate_is_an_unknown_character(tmp_path, ours, capsys):
    pairs = [{"prompt": "\ud800", "target": "大学"}, {"prompt": "\ud83d\ude00", "target": "大\udc00学"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf8")
    clean = write(
        tmp_path / "u.jsonl", [{"prompt": "\ufffd", "target": "大学"}, {"prompt": "😀", "target": "大\ufffd学"}]
    )
    assert data.load(config(tmp_path / "t.jsonl", form="pairs"), ours).train == (
        data.load(config(clean, form="pairs"), ours).train
    )
    assert "t.jsonl: 2 lone surrogates replaced by U+FFFD, the first one in line 1" in capsys.readouterr().err


def test_lines_are_prepared_as_the_base_was_trained(tmp_path, ours):
    path = write(tmp_path / "t.jsonl", [{"text": "早稲田大学で\r\n\r\n勉強している。"}])
    found = data.load(config(path), ours)
    assert [ours.decode(sample.target) for sample in found.train] == ["早稲田大学で😃\n勉強している。😃"]  # normalized
    assert [len(sample.target) <= 15 for sample in data.load(config(path, max_length=15), ours).train] == [True, True]
    loaded = data.load(config(path, max_length=5), ours)
    assert (
        len(loaded.train) == loaded.overlong == 2
        and "2 of a single line longer than data.max_length" in loaded.summary()
    )


def test_a_foreign_tokenizer_takes_the_text_as_it_stands_and_doubles_no_end(tmp_path, foreign):
    assert foreign.tokenizer("今日").input_ids == [3, 4, END]
    path = write(tmp_path / "t.jsonl", [{"text": "今日は雨"}, {"text": "今日は晴</s>"}, {"text": "本"}])
    found = data.load(config(path, form="samples"), foreign)
    assert [sample.target for sample in found.train] == [[3, 4, 5, 6], [3, 4, 5, 7], [0]] and found.unknown == 1
    assert [row.ids.count(END) for row in rows(found.train, BEGIN, True, END)] == [1] * 6


def test_rows_with_and_without_begin():
    sample = data.Sample([], [7, 8, 9], 1)
    both = [TokenRow([1, 7, 8, 9, 2], 1), TokenRow([7, 8, 9, 2], 1)]
    assert rows([sample], BEGIN, True, END) == both
    assert rows([sample], BEGIN, False, END) == both[:1] and rows([sample], None, True, END) == both[1:]
    assert rows([data.Sample([5, 6], [7, 8], 1)], BEGIN, True, END) == [TokenRow([5, 6, 7, 8, 2], 2)]


def test_labels_are_shifted_once_and_only_targets_count():
    batch = collate([TokenRow([5, 6, 7, 8, 2], 2), TokenRow([1, 9, 2], 1)])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [1, 9, 0, 0]]
    assert batch["labels"].tolist() == [[IGNORED, 7, 8, 2], [9, 2, IGNORED, IGNORED]]
    logits = torch.randn(2, 4, 10)
    wanted = [logits[0, 1, 7], logits[0, 2, 8], logits[0, 3, 2], logits[1, 0, 9], logits[1, 1, 2]]
    parts = [logits[0, 1:4], logits[1, :2]]
    expected = (torch.cat(parts).logsumexp(-1).sum() - sum(wanted)) / 5
    assert loss(logits, batch["labels"]).item() == pytest.approx(expected.item(), rel=1e-5)


def test_each_epoch_has_each_row_once_in_an_order_of_its_own():
    rows = [TokenRow([number, 2], 1) for number in range(20)]
    samples = Samples(rows, 50, seed=3)
    seen = [samples[index].ids[0] for index in range(50)]
    assert sorted(seen[:20]) == sorted(seen[20:40]) == list(range(20)) and seen[:20] != seen[20:40]
    assert [Samples(rows, 50, seed=3)[index].ids[0] for index in range(50)] == seen


def test_first_samples_are_trained_on_last_ones_held_out(tmp_path):
    samples = [data.Sample([], [number], number) for number in range(10)]
    for size, held_out in ((3, 3), (0.2, 2), (0, 0)):
        first, last = data.split(samples, build(DataConfig, {"input": str(tmp_path), "dev_size": size}))
        assert first == samples[: 10 - held_out] and last == samples[10 - held_out :]


@pytest.mark.parametrize(
    ("lines", "settings", "words"),
    [
        ('{"text": "今日"}\n\n{"text": 3}\n', {}, 'line 3: expected'),
        ('{"text": "今日"}\n{"text": "今\n', {}, "line 2: not readable as JSON"),
        ('{"text": "今日"}\n{"text": " \\n"}\n', {}, "line 2: nothing to learn"),
        ('{"prompt": "今", "text": "日"}\n', {"form": "pairs"}, 'line 1: expected.*"target"'),
        ('{"text": "今日"}\n', {"dev_size": 2}, r"data.dev_size: 2 is not allowed: .* has 1 samples"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(tmp_path, ours, lines, settings, words):
    (tmp_path / "t.jsonl").write_text(lines, encoding="utf8")
    with pytest.raises(CourseError, match=words):
        data.load(config(tmp_path / "t.jsonl", **settings), ours)


@pytest.mark.parametrize("family", bases.FAMILIES)
@pytest.mark.parametrize("begin", ["both", "without"])
def test_a_text_too_long_for_the_base_is_left_out_or_cut_and_counted(tmp_path, family, begin):
    words = bases.folder(tmp_path, family)
    path = write(tmp_path / "t.jsonl", [{"text": "勉強"}, {"text": "勉強している。" * 20}])
    data = {"input": str(path), "form": "samples", "dev_size": 0, "begin": begin}
    values = {"model": {"base": str(words)}, "data": data}
    runs = {way: PrefixRun(build(PrefixConfig, values, [f"data.too_long={way}"])) for way in ("skip", "cut")}
    for run in runs.values():
        run.check()
    # A GPT-NeoX rotates positions, so its prefix takes none of them.
    room = bases.POSITIONS - (10 if family == "gpt2" else 0) - (begin == "both")
    short, whole = ([*runs["cut"].codec.encode(text)] for text in ("勉強", "勉強している。" * 20))
    assert len(whole) > room
    if family == "gpt_neox":
        assert [[sample.target for sample in run.texts.train] for run in runs.values()] == [[short, whole]] * 2
        assert not any(run.texts.too_long for run in runs.values())
        return
    assert [sample.target for sample in runs["skip"].texts.train] == [short]
    assert [sample.target for sample in runs["cut"].texts.train] == [short, whole[:room]]
    assert runs["skip"].summary().endswith("; 1 left out: too long for the base")
    assert runs["cut"].summary().endswith("; 1 cut: too long for the base")
    assert all(run.identity()["too_long"] == 1 for run in runs.values())
    end = runs["cut"].codec.tokenizer.eos_token_id
    # Not the middle of a text, but its end, is what an end token follows.
    assert [row.ids[-1] == end for row in runs["cut"].rows()[0]] == ([True] * 2 + [False] * 2)[:: 2 - (begin == "both")]
    assert max(len(row.ids) for row in runs["cut"].rows()[0]) <= room + 1


def test_a_prompt_too_long_for_the_base_is_left_out(tmp_path):
    words = bases.folder(tmp_path, "gpt2")
    long = "勉強している。" * 20
    pairs = [
        {"prompt": long, "target": "勉強"},
        {"prompt": "勉強", "target": long},
        {"prompt": "勉強", "target": "大学"},
    ]
    path = write(tmp_path / "t.jsonl", pairs)
    values = {"model": {"base": str(words)}, "data": {"input": str(path), "form": "pairs", "dev_size": 0}}
    runs = [PrefixRun(build(PrefixConfig, values, [f"data.too_long={way}"])) for way in ("skip", "cut")]
    assert [[sample.line for sample in run.texts.train] for run in runs] == [[3], [2, 3]]
    assert [run.texts.too_long for run in runs] == [2, 2]
    write(path, pairs[:1])
    with pytest.raises(UsageError, match="data.too_long: skip leaves no sample of .*: all have more tokens .* or cut"):
        PrefixRun(build(PrefixConfig, values)).check()


def test_a_base_without_a_begin_token(tmp_path):
    words = bases.folder(tmp_path, "gpt2")
    path = write(tmp_path / "t.jsonl", [{"text": "勉強"}])
    values = {"model": {"base": str(words)}, "data": {"input": str(path), "form": "samples", "dev_size": 0}}
    (words / "preparation.json").unlink()  # ours begin behind the end of another text
    settings = json.loads((words / "tokenizer_config.json").read_text()) | {"bos_token": None}
    (words / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UsageError, match="data.begin: both is not allowed: .* allowed: without"):
        PrefixRun(build(PrefixConfig, values)).rows()
    PrefixRun(build(PrefixConfig, values, ["data.begin=without"])).rows()

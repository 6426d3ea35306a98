"""Errors in the reader's language: the message is English, and the line that is shown is found by its template."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from babel.messages import Catalog
from babel.messages.mofile import write_mo
from course_lib import cli
from course_lib.errors import CourseError
from course_lib.language import catalogs, cell_words, words
from course_lib.language.words import error_line

TEMPLATES = {
    "{path}: no such file": "{path}：ファイルがありません",
    "{path}: no such file; allowed: {allowed}": "{path}：ファイルがありません。使える値：{allowed}",
    "{1}: {what}; run it again": "{1}：{what}。もう一度実行してください",
    "{file} is older than {other}": "{other}より{file}のほうが古いです",
    "the disk is full": "ディスクがいっぱいです",
    "rank {number}": "ランク{number}",
}
# Words that are neither paths, keys, options nor code: more than two in a row are English.
CODE = r"`[^`]*`|'[^']*'|\"[^\"]*\""
ENGLISH = r"(?<![\w./=:-])[A-Za-z]+(?: [A-Za-z]+){2,}(?![\w/=]|\.\w)"


@pytest.fixture
def japanese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(locale="ja")
    for text, translation in TEMPLATES.items():
        catalog.add(text, translation, context=words.ERROR)
    catalog.add("training", "学習用")
    catalog.add("{place}: {problem}", "{place}：{problem}")
    written = io.BytesIO()
    write_mo(written, catalog)
    path = tmp_path / "locale" / "ja" / "LC_MESSAGES" / "course.mo"
    path.parent.mkdir(parents=True)
    path.write_bytes(written.getvalue())
    monkeypatch.setenv("COURSE_LOCALE", str(tmp_path / "locale"))
    monkeypatch.setenv("COURSE_LANG", "ja")


@pytest.mark.usefixtures("japanese")
@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("a.txt: no such file", "a.txt：ファイルがありません"),
        ("the disk is full", "ディスクがいっぱいです"),
        # fields in another order
        ("a.txt is older than b.txt", "b.txtよりa.txtのほうが古いです"),
        # a field that is a message without fields, or with some
        ("out: the disk is full; run it again", "out：ディスクがいっぱいです。もう一度実行してください"),
        ("out: rank 3: no such file; run it again", "out：ランク3：ファイルがありません。もう一度実行してください"),
        # a place before a message
        ("node1: out: the disk is full", "node1: out：ディスクがいっぱいです"),
        # an empty field, and one with line breaks
        (": no such file", "：ファイルがありません"),
        ("a\nb: no such file", "a\nb：ファイルがありません"),
        # the longest template that matches
        ("a.txt: no such file; allowed: b.txt", "a.txt：ファイルがありません。使える値：b.txt"),
        # no template, also in a field: names are data
        ("a.txt: not a file: it is a pond", "a.txt: not a file: it is a pond"),
        ("the disk is full of fish", "the disk is full of fish"),
        # a part that another program's message matches
        ("127.0.0.1:8000: rank of a model", "127.0.0.1:8000: rank of a model"),
        ("training: no such file", "training：ファイルがありません"),
        ("", ""),
    ],
)
def test_the_line_of_a_message(message: str, line: str) -> None:
    assert error_line(message) == line


def test_english_messages_are_as_they_were_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COURSE_LANG", raising=False)
    assert error_line("out: the disk is full; run it again") == "out: the disk is full; run it again"
    assert words.phrase("the disk is full") == "the disk is full"


@pytest.mark.usefixtures("japanese")
def test_a_printed_error_is_translated_and_its_message_is_english() -> None:
    error = CourseError("a.txt: no such file")
    assert words.printed(error) == "a.txt：ファイルがありません" and str(error) == "a.txt: no such file"


def test_templates_are_those_of_errors_and_phrases() -> None:
    found = {entry.text for entry in catalogs.error_lines()}
    # an f-string, both sides of a conditional expression, a phrase, an error of a setting, and a line of Typer
    assert found >= {
        "{path}: no such file",
        "{target}: is a file, expected a name for a folder",
        "{target}: is a device or pipe, expected a name for a folder",
        "no checkpoint was saved yet",
        "data.train_size: 0 is not allowed: nothing would be trained",
        "Missing argument '{name}'.",
        "input should be less than {limit}",
    }
    assert all(re.search("[A-Za-z]{2}", words.FIELD.sub("", text)) for text in found)


# The files of a mistake, the command, and words of its line. The name of a folder ends in "/".
SITUATIONS: dict[str, tuple[dict[str, str], str, str]] = {
    "no such command": ({}, "ru", "コマンド'ru'はありません。'run'のことですか"),
    "no such option": ({}, "run --nosuch", "オプション--nosuchはありません"),
    "missing argument": ({}, "corpus webtext", "引数'FILE'がありません"),
    "extra argument": ({}, "status a b", "余分な引数があります"),
    "option without value": ({}, "run 1 --from-cache", "値が必要です"),
    "value of an option": ({}, "tokenize a.txt --workers x", "'--workers'の値が正しくありません：整数が必要です"),
    "limit of an option": ({}, "corpus webtext a.txt -o b --workers 0", "1以上の値が必要です"),
    "choice of an option": ({}, "corpus download fishes", "使える値：'jawiki', 'cc100'"),
    "no such chapter": ({}, "run fishes", "ありません。使える値：all"),
    "no such input": ({}, "corpus webtext a.txt -o b.jsonl", "a.txt：ファイルがありません"),
    "setting out of range": ({}, "corpus webtext a.txt -o b --set max_line_bytes=0", "0は使えません：1以上の値が"),
    "unknown setting": ({}, "corpus webtext a.txt -o b --set fishes=3", "fishes：不明なキーです。使える値：max_line"),
    "type of a setting": ({}, "corpus webtext a.txt -o b --set examples=x", "整数が必要です"),
    "choice of a setting": ({}, "pretrain --set precision.dtype=int8", "使える値：'fp32', 'bf16', 'fp16'"),
    "two settings": ({}, "pretrain --set optimizer.lr.max=1e-9", "学習率が上がることになります"),
    "no equals sign": ({}, "corpus webtext a.txt -o b --set fishes", "section.key=valueの形が必要です"),
    "no such settings file": ({}, "corpus webtext a.txt -o b -c fishes", "設定ファイルがありません"),
    "not settings": ({"a.yaml": "[1]"}, "corpus webtext a.txt -o b -c a.yaml", "最上位には"),
    "ending of a dump": ({"a.xml.zip": "x"}, "corpus wikipedia a.xml.zip -o b.jsonl", "拡張子"),
    "not compressed": ({"a.xml.gz": "x"}, "corpus wikipedia a.xml.gz -o b.jsonl", "gzipファイルではありません"),
    "no pages": ({"a.xml": "<x/>"}, "corpus wikipedia a.xml -o b.jsonl", "<page>が見つかりません"),
    "half a page": (
        {"a.xml": "<page><title>x</title>"}, "corpus wikipedia a.xml -o b.jsonl", "途中で切れています",
    ),
    "no text": ({"a.txt": "\n \n"}, "corpus webtext a.txt -o b.jsonl", "文書がなく、空白だけです"),
    "output is the input": ({"a.txt": "x"}, "corpus webtext a.txt -o a.txt", "入力そのものです"),
    "no text in JSON": ({"a.jsonl": "{}\n"}, "evaluate m --data a.jsonl", "1行目：文字列の\"text\"を"),
    "no model": ({}, "generate nomodel x", "フォルダがありません。モデルのフォルダが必要です"),
    "a file for a model": ({"m": "x"}, "generate m x", "ファイルです。モデルのフォルダが必要です"),
    "folder without a model": ({"m/": ""}, "generate m x", "config.jsonがありません"),
    "size of a model": (
        {"m/config.json": '{"model_type": "gpt2", "n_layer": 0}'}, "generate m x", "の整数",
    ),
    "truncated index": (
        {"t.bin": "x", "t.idx": "MMIDIDX\0\0"}, "tokens t", "途中で切れています",
    ),
    "two settings of generation": (
        {}, "generate m x --set strategy=greedy --set num_return_sequences=3", "得られるのは1個以下です",
    ),
    "no products to pack": ({}, "cache pack -o a.zip", "完成した成果物がありません"),
    "broken archive": ({"a.zip": "x"}, "run 1 --from-cache a.zip", "完全なアーカイブではありません"),
    "no Megatron checkpoint": (
        {"c/": ""}, "convert megatron c -o d --tokenizer t", "Megatronのチェックポイントではありません",
    ),
    "no FasterTransformer folder": ({"c/": ""}, "ft inspect c", "FasterTransformerのフォルダでは"),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_mistake_gives_no_english_line(
    name: str, own_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, command, part = SITUATIONS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_LANG", "ja")
    for file, content in files.items():
        path = Path(file)
        (path if file.endswith("/") else path.parent).mkdir(exist_ok=True)
        if not file.endswith("/"):
            path.write_text(content, encoding="utf8")
    assert cli._main(command.split()) in (1, 2)
    line = capsys.readouterr().err.strip().split("\n")[-1]
    assert part in line
    assert not re.search(ENGLISH, re.sub(CODE, "", line)), line


def test_an_unknown_language_is_one_line_in_english(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COURSE_LANG", "xx")
    with pytest.raises(SystemExit) as exit:
        cli.main(["status"])
    assert exit.value.code == 2
    assert capsys.readouterr().err == "course: COURSE_LANG: 'xx' has no catalogue; allowed: en, ja\n"


def test_an_error_that_ends_a_cell_or_is_printed_by_it_is_translated(
    japanese: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell()
    try:
        monkeypatch.setattr("IPython.get_ipython", lambda: shell)
        cell_words.install()
        raising = "from course_lib.errors import CourseError\nraise CourseError('the disk is full')"
        done = shell.run_cell(raising)
        assert isinstance(done.error_in_exec, CourseError)
        shown = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
        assert "CourseError: ディスクがいっぱいです" in shown and "the disk is full" in shown.split("CourseError: ")[0]
        # A description that is not in an error, another error, and a text that is no message.
        shell.run_cell("explanation = 'the disk is full'\nprint(explanation)\nprint('d1 is older than d2')\n1 / 0")
        shown = capsys.readouterr().out
        assert shown.startswith("ディスクがいっぱいです\nd1 is older than d2\n") and "ZeroDivisionError" in shown
    finally:
        InteractiveShell.clear_instance()

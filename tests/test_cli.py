"""The `course` command as a user meets it: real processes, exit codes, and one line for every mistake."""

import inspect
import io
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
import typer
from course_lib import __version__, cli, paths
from course_lib.command_line import command_table
from course_lib.command_line.command import command
from course_lib.command_line.from_options import notes, settings_class, settings_parameter
from course_lib.command_line.options import Note, Prompts
from course_lib.command_line.output import Shown
from course_lib.errors import CourseError
from course_lib.settings import config
from course_lib.workspace import chapters
from course_lib.workspace import products as workspace
from course_lib.workspace.products import Product
from typer.models import ParameterInfo

from tests.waiting import LIMIT, until

COMMAND = [sys.executable, "-m", "course_lib.cli"]
HEAVY = {"torch", "transformers", "deepspeed", "matplotlib", "tokenizers", "sentencepiece", "nbformat"}
COMMANDS = {words: command.function() for words, command in command_table.COMMANDS.items()}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands run in an empty folder, with the checkout on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(paths.REPOSITORY))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def course(*arguments: str, **given: Any) -> "subprocess.CompletedProcess[str]":
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | given
    return subprocess.run([*COMMAND, *arguments], text=True, timeout=LIMIT, check=False, **pipes)


def refused(capsys: pytest.CaptureFixture[str], arguments: str, code: int) -> str:
    """The one line of a command that is refused in this process."""
    assert cli._main(shlex.split(arguments)) == code
    said = capsys.readouterr()
    assert said.out == "" and re.fullmatch(r"course: [^\n]+\n", said.err), said
    return said.err


# help


def test_help_answers_at_once_and_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"]
    started = sum(os.times()[2:4])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sum(os.times()[2:4]) - started < 0.6
    modules = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert {name.split(".")[0] for name in modules} & (HEAVY | {"pydantic", "numpy"}) == set()
    # The modules of the commands are named in the table, and not run.
    light = {"cli", "command_line", "errors", "language", "language.words", "settings", "settings.profiles"}
    ours = {name.removeprefix("course_lib.") for name in modules if name.startswith("course_lib.")}
    assert {name for name in ours if not name.startswith("command_line.")} <= light


def test_a_look_at_all_modules_imports_nothing_heavy_and_no_docs() -> None:
    """`import torch` looks at an attribute of each, which imports the modules of the commands. A wheel has no docs."""
    look = "[hasattr(module, '__file__') for module in list(sys.modules.values())]"
    found = f"({HEAVY} & set(sys.modules), 'course_authors' in sys.modules)"
    code = f"import sys; from course_lib.command_line import command_table, corpus; {look}; print({found})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(set(), False)\n"


def test_lists_of_commands_have_one_whole_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = course("--help").stdout.splitlines()
    for name, listed in command_table.app.commands.items():
        assert f"  {name:<12}  {listed.help}" in lines
    assert lines.index("Corpus:") < lines.index("Serving:") < lines.index("For authors of the course:")


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_explains_all_its_options(capsys: pytest.CaptureFixture[str], words: str) -> None:
    function = COMMANDS[words]
    assert cli._main([*words.split(), "-h"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: course {words} ") and "--quiet" in shown and "--profile" in shown
    assert ("--json" in shown) == (inspect.signature(function).return_annotation is not None)
    if cls := settings_class(function):
        told = " ".join(shown.split())
        for row in config.describe(cls):
            assert row.help.split()[0] in told and (f"--{row.key.replace('_', '-')}" in told or row.key in told)


def parameters(words: str) -> Iterator[tuple[inspect.Parameter, Any]]:
    """The parameters of a command with their typer.Option or typer.Argument, without those that come from a class."""
    function = COMMANDS[words]
    chosen = settings_parameter(function)
    for parameter in inspect.signature(function).parameters.values():
        if chosen is None or parameter.name != chosen.name:
            (info,) = [note for note in notes(parameter) if isinstance(note, ParameterInfo)]
            yield parameter, info


@pytest.mark.parametrize("words", COMMANDS)
def test_what_an_option_does_is_what_its_help_says(words: str) -> None:
    for parameter, info in parameters(words):
        about = notes(parameter)
        assert info.help
        # The empty text is no path, wherever a path is allowed.
        assert "Path" not in str(typing.get_args(parameter.annotation)[0]) or info.parser
        reads_input = Note.INPUT_FILE in about or Note.INPUT_TEXT in about
        assert reads_input == ("- reads standard input" in info.help), parameter
        assert (Note.PRODUCT in about) == ("-o" in (info.default, *(info.param_decls or ())))


def test_version_and_completion() -> None:
    assert course("--version").stdout == f"course {__version__}\n"
    asked = {"_COURSE_COMPLETE": "complete_bash", "COMP_WORDS": "course gptsan tr", "COMP_CWORD": "2"}
    assert course(env=os.environ | asked).stdout.split() == ["train"]


# one meaning of each option


def test_standard_input_standard_output_and_json(elsewhere: Path) -> None:
    """Three documents in two files, and what `segment` makes of both."""
    (elsewhere / "a.txt").write_text("雨が降る。\n\n雪が降る。\n", encoding="utf8")
    (elsewhere / "b.jsonl").write_text('{"text": "風が吹く。"}\n', encoding="utf8")
    segmented = "雨 が 降る 。\n\n雪 が 降る 。\n\n風 が 吹く 。\n\n"
    with (elsewhere / "a.txt").open("rb") as file:
        done = course("segment", "-", "b.jsonl", "-o", "-", "--workers", "2", stdin=file)
    assert (done.stdout, done.returncode) == (segmented, 0) and "3 documents" in done.stderr
    assert {path.name for path in elsewhere.iterdir()} == {"a.txt", "b.jsonl"}
    done = course("segment", "-", "-o", "-", input='{"text": 3}\n')
    assert done.stderr.startswith("course: standard-input.jsonl, line 1: ") and done.returncode == 1
    found = json.loads(course("segment", "a.txt", "b.jsonl", "-o", "out.txt", "--json").stdout)
    assert (found["documents"], found["words"]) == (3, 12)
    assert (elsewhere / "out.txt").read_text(encoding="utf8") == segmented


def test_prompts_from_standard_input_and_limits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def echo(
        prompts: Prompts, *, times: typing.Annotated[int, typer.Option("--times", min=1, help="how often")] = 1
    ) -> object:
        texts = list(prompts) * times
        return Shown(texts, " ".join(texts), failure="bad" if "雪" in prompts else "")

    echoed = command("echo", echo, "Echo")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("雨\n".encode())))
    echoed(["風", "-", "--times", "2"], standalone_mode=False)
    assert capsys.readouterr().out == "風 雨 風 雨\n"
    # A line break of another system at the end is none of the prompt, either.
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("雨\r\n".encode())))
    echoed(["風", "-"], standalone_mode=False)
    assert capsys.readouterr().out == "風 雨\n"
    with pytest.raises(CourseError, match="bad"):
        echoed(["雪", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == ["雪"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("雨".encode("cp932"))))
    with pytest.raises(CourseError, match="standard input: not UTF-8"):
        echoed(["-"], standalone_mode=False)
    with pytest.raises(typer.BadParameter):
        echoed(["雨", "--times", "0"], standalone_mode=False)


def test_texts_to_check_from_standard_input(elsewhere: Path) -> None:
    (elsewhere / "a.txt").write_text("雨が降る。\n\n雪が降る。\n", encoding="utf8")
    with (elsewhere / "a.txt").open("rb") as file:
        done = course("world", "check", "-", "--json", stdin=file)
    assert json.loads(done.stdout)["texts"] == 2 and done.stderr == ""


def test_quiet_and_profile_and_their_end(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (["memory", "--profile", "xl"], "profile xl"), (["memory", "--profile", "xl", "-q"], ""):
        before = dict(os.environ)
        assert cli._main(arguments) == 0 and os.environ == before
        found = capsys.readouterr().err
        assert said in found and bool(found) == bool(said)
    assert "huge" in refused(capsys, "status --profile huge", 2)


# mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--nope", "--nope"),
        ("corpus nope", "'nope'"),
        ("corpus wikipedia in.xml", "'-o'"),
        ("corpus download wiki", "'wiki'"),
        ("run 9", "chapter '9' does not exist"),
        ("segment in.txt -o out.txt --workers 100000", "--workers"),
        ("segment in.txt -o out.txt --set splt=true", "splt: unknown key"),
        ("segment in.txt -o out.txt --segmenter kytea", "segmenter: 'kytea'"),
        ("segment in.txt -o out.txt -c absent.yaml", "absent.yaml: no such config"),
        ("segment in.txt -o ''", "'' is not a path"),
        ("segment '' -o out.txt", "'' is not a path"),
        ("segment in.txt -o /dev/fd/1", "is a device or pipe"),
        ("tokenizer bpe in.txt -o -", "one text only"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    (elsewhere / "in.txt").write_text("日本語です。\n")
    assert said in refused(capsys, arguments, 2)
    assert [path.name for path in elsewhere.iterdir()] == ["in.txt"]
    assert not workspace.root().exists()


def test_a_redirection_keeps_what_is_in_its_file(elsewhere: Path) -> None:
    (elsewhere / "a.txt").write_text("雨が降る。\n", encoding="utf8")
    (elsewhere / "history").write_text("precious\n")
    (elsewhere / "link").symlink_to("/dev/stdout")
    with (elsewhere / "history").open("ab") as history:
        for output, code in {"/dev/stdout": 2, "link": 2, "-": 0}.items():
            assert course("segment", "a.txt", "-o", output, stdout=history).returncode == code
    assert (elsewhere / "history").read_text(encoding="utf8") == "precious\n雨 が 降る 。\n\n"


def test_a_wrong_setting_of_a_run_is_refused_before_anything_heavy_is_imported_or_built() -> None:
    arguments = shlex.split("pretrain -c gpt2-tiny.yaml --set engine.max_steps=60 --set optimizer.lr.warmup_steps=61")
    code = f"import sys; from course_lib import cli; print(cli._main({arguments}), {HEAVY} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 set()\n" and "optimizer.lr.warmup_steps: 61" in done.stderr
    assert not workspace.root().exists()


def test_no_command_shows_the_help_on_stderr() -> None:
    done = course("corpus")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("Usage: course corpus")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.jsonl", None, "none.jsonl: no such file"),
        ("in.jsonl", b'{"text": "a"}\n{"text": 3}\n', "in.jsonl, line 2: "),
        ("in.jsonl.bz2", b"no archive", "in.jsonl.bz2: broken bz2 data"),
    ],
)
def test_bad_data_is_one_line_and_exit_code_1(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, said: str
) -> None:
    (elsewhere / "out.txt").write_text("earlier")
    if content is not None:
        (elsewhere / name).write_bytes(content)
    assert said in refused(capsys, f"segment {name} -o out.txt --workers 1", 1)
    assert (elsewhere / "out.txt").read_text() == "earlier"


def test_an_error_is_in_the_readers_language(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_LANG", "ja")
    assert refused(capsys, "segment none.jsonl -o out.txt", 1) == "course: none.jsonl：ファイルがありません\n"
    assert not [*elsewhere.iterdir()]


# the workspace


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int], list[str]]:
    """A course of two small products, the second made from the first: their settings, and the names of those built."""
    settings, built = {"n": 1}, list[str]()

    def build(folder: Path, inputs: list[Path], _settings: Any) -> dict[str, Any]:
        built.append(f"{folder.parent.name}/{folder.name.split('.')[1]}")
        (folder / "x").write_text(f"{settings}" * (1 + len(inputs)))
        return {"lines": 7, "by reason": {"short": 3}}

    first = Product("corpus/first", build, lambda: dict(settings))
    second = Product("japanese/second", build, inputs=(first,))
    of_chapters = {"corpus": [first], "japanese": [second]}
    monkeypatch.setattr(chapters.Chapter, "products", lambda chapter: of_chapters.get(chapter.package, []))
    return settings, built


def test_run_status_and_clean(small: tuple[dict[str, int], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    settings, built = small

    def out(*arguments: str) -> str:
        capsys.readouterr()
        assert cli._main(list(arguments)) == 0
        return capsys.readouterr().out

    def states() -> list[str]:
        return [row["state"] for row in json.loads(out("status", "--json"))]

    assert states() == ["missing", "missing"]
    assert re.search(r"^2 Normalization and segmentation: \d+ s; second [\d.]+ k?B$", out("run", "2"), re.MULTILINE)
    assert built == ["corpus/first", "japanese/second"]
    assert "building" not in out("run") and len(built) == 2
    assert re.search(r"^corpus/first +fresh .* lines 7$", out("status"), re.MULTILINE)
    settings["n"] = 2
    assert re.search(r"^corpus/first +stale .* settings changed$", out("status"), re.MULTILINE)
    assert states() == ["stale", "stale"]
    out("run", "corpus")
    assert built[2:] == ["corpus/first"]
    assert "removed " in out("clean", "corpus", "--yes")
    assert states() == ["missing", "stale"]


def test_a_damaged_manifest_is_a_stale_product_that_stays(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = workspace.root() / "corpus/wikipedia/manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{ half")
    assert cli._main(["status"]) == cli._main(["clean", "1", "--yes"]) == 0
    said = capsys.readouterr().out
    assert re.search("^corpus/wikipedia +stale +6 B +manifest.json is damaged$", said, re.MULTILINE)
    assert "stays: corpus/wikipedia, 6 B" in said and manifest.exists()


# pipes and interrupts


@pytest.mark.parametrize(("arguments", "unbuffered"), [("--help", ""), ("status", "1")])
def test_a_reader_that_has_enough_is_no_error(monkeypatch: pytest.MonkeyPatch, arguments: str, unbuffered: str) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    reader, writer = os.pipe()
    os.close(reader)
    done = course(arguments, stdout=writer)
    os.close(writer)
    # 128 + SIGPIPE, as a shell reports it for other programs
    assert (done.stderr, done.returncode) == ("", 141)


@pytest.fixture
def begun() -> Iterator[Any]:
    """Starts commands in a session of their own, as a terminal does, and leaves none behind."""
    running: list[subprocess.Popen[str]] = []

    def start(*command: str) -> "subprocess.Popen[str]":
        # Under nohup SIGHUP is ignored, and children inherit that.
        restore = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running.append(subprocess.Popen(command, start_new_session=True, preexec_fn=restore, **pipes))  # type: ignore[call-overload]
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("number", "code", "said", "workers"),
    [
        (signal.SIGINT, 130, "interrupted", "2"),
        (signal.SIGTERM, 143, "terminated", "2"),
        (signal.SIGHUP, 129, "hung up", "1"),
    ],
)
def test_a_signal_amid_work_leaves_the_earlier_product_and_one_line(
    elsewhere: Path, begun: Any, number: signal.Signals, code: int, said: str, workers: str
) -> None:
    """`segment` of a pipe has begun its work, and waits for more."""
    (elsewhere / "out.txt").write_text("earlier")
    os.mkfifo(elsewhere / "in.jsonl")
    process = begun(*COMMAND, "segment", "in.jsonl", "-o", "out.txt", "--workers", workers)
    line = json.dumps({"text": "早稲田大学で自然言語処理を勉強している大学生です。" * 10}).encode() + b"\n"
    with open(elsewhere / "in.jsonl", "wb", buffering=0) as pipe:
        for _ in range(1_400_000 // len(line)):
            pipe.write(line)  # the pipe holds little: when this ends, the command has begun its work
        assert len(list(elsewhere.glob(".out.txt.*.tmp"))) == 1
        os.killpg(process.pid, number)
        if number != signal.SIGINT:
            os.killpg(process.pid, number)  # as GNU timeout does
        assert process.communicate(timeout=LIMIT)[1] == f"course: {said}; earlier products are unchanged\n"
    assert process.returncode == code and (elsewhere / "out.txt").read_text() == "earlier"
    assert {path.name for path in elsewhere.iterdir()} == {"in.jsonl", "out.txt"}


# Stops at the first import of the table of commands, and sends a signal there.
AMID_IMPORTS = """
import builtins, os, signal, sys
before = builtins.__import__
def interrupting(name, *rest, **options):
    if name == "typer":
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    return before(name, *rest, **options)
builtins.__import__ = interrupting
from course_lib.cli import main
main()
"""


@pytest.mark.parametrize(("name", "code", "said"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")])
def test_a_signal_during_the_imports_is_one_line(name: str, code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", AMID_IMPORTS, name], capture_output=True, text=True, check=False)
    assert done.stderr == f"course: {said}; earlier products are unchanged\n"
    assert (done.returncode, done.stdout) == (code, "")


def test_nothing_slow_is_imported_before_signals_are_handled() -> None:
    code = "import sys; before = set(sys.modules); import course_lib.cli; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20


def test_a_full_standard_output_is_named(elsewhere: Path) -> None:
    try:
        os.mknod(elsewhere / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        full = open(elsewhere / "full", "wb")  # noqa: SIM115
    except PermissionError:
        pytest.skip("only root may make devices")
    with full:
        done = course("doctor", "--help", stdout=full)
    assert (done.returncode, done.stderr) == (1, "course: standard output: No space left on device\n")


def test_a_signal_during_a_run_leaves_no_half_product(begun: Any) -> None:
    process = begun(*COMMAND, "run", "corpus")
    assert process.stdout.readline() == "building corpus/wikipedia (missing)\n"
    until(lambda: list((workspace.root() / "corpus").glob(".wikipedia.*.tmp/.*")))
    ends_with_its_children(process, signal.SIGTERM, 143, "terminated")
    assert not (workspace.root() / "corpus" / "wikipedia").exists()
    assert list(workspace.root().rglob("*.tmp")) == []


def ends_with_its_children(process: "subprocess.Popen[str]", number: signal.Signals, code: int, said: str) -> None:
    """A signal that reaches only the command ends all that it started."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.communicate(timeout=LIMIT)[1].splitlines()[-1] == f"course: {said}; earlier products are unchanged"
    assert process.returncode == code
    until(lambda: not any(child.is_running() for child in children))


# A command that executes a notebook.
EXECUTING = """
from pathlib import Path
from course_lib import cli
from course_lib.notebooks import execution as notebooks
from course_lib.command_line import workspace as workspace_cli
def status() -> None:
    notebooks.execute(Path("in.ipynb"), Path("out.ipynb"))
workspace_cli.status = status
cli.main(["status"])
"""


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.rehearse),
    ],
)
def test_a_signal_during_a_notebook_ends_its_kernel(
    elsewhere: Path, begun: Any, number: signal.Signals, code: int, said: str
) -> None:
    source = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(10_000)"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), elsewhere / "in.ipynb")
    process = begun(sys.executable, "-c", EXECUTING)
    until((elsewhere / "begun").exists, process)
    assert psutil.Process(process.pid).children()
    ends_with_its_children(process, number, code, said)
    assert not (elsewhere / "out.ipynb").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "--nosuch"], "--nosuch：このオプションはありません。（`course generate --help` を参照）"),
        (["generate"], "引数'MODEL'がありません（`course generate --help` を参照）"),
        (
            ["generate", "--promp", "3"],
            "--promp：このオプションはありません。(候補：--profile)（`course generate --help` を参照）",
        ),
        (
            ["segmet"],
            "'segmet'：このコマンドはありません。もしかして：'segment', 'segment-eval'?（`course --help` を参照）",
        ),
    ],
)
def test_wrong_usage_is_said_in_the_readers_language(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COURSE_LANG", "ja")
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert capsys.readouterr().err.endswith(f"{words}\n")


# standard streams that are closed or full


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("--help", 0), ("world write --documents 2 -o w.jsonl", 0), ("none", 2)])
def test_closed_streams_change_nothing_else(words: str, code: int, closed: str, elsewhere: Path) -> None:
    done = subprocess.run(["sh", "-c", f"{shlex.join(COMMAND)} {words} {closed}"], capture_output=True, text=True)
    assert done.returncode == code and "Traceback" not in done.stderr
    if "-o" in words:
        # No line of the command, or of its progress bar, is in the product.
        assert [json.loads(line)["text"] for line in (elsewhere / "w.jsonl").read_text().splitlines()]


def test_a_text_for_a_closed_standard_output_is_refused() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(COMMAND)} world write --documents 2 -o - >&-"], capture_output=True, text=True
    )
    line = "course: -o -: standard output is closed; allowed: a path, or an open standard output\n"
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.parametrize("full", ["| head -1", ">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full"])
def test_full_streams_have_no_traceback(full: str) -> None:
    done = subprocess.run(["sh", "-c", f"{shlex.join(COMMAND)} --help {full}"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1)


@pytest.mark.parametrize("target", [".", "..", "/", "loop", "loop/x", "file/x", "x" * 300])
@pytest.mark.parametrize(
    "words", ["segment file", "tokenizer bpe file", "world write --documents 2", "corpus webtext file"]
)
def test_a_target_that_cannot_be_is_one_line(
    words: str, target: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "loop").symlink_to("loop")
    (elsewhere / "file").write_text("今日は良い天気です。\n", encoding="utf8")
    before = sorted(elsewhere.rglob("*"))
    assert cli._main([*words.split(), "-o", target]) in (1, 2)
    assert re.fullmatch(r"course: [^\n]+\n", capsys.readouterr().err) and sorted(elsewhere.rglob("*")) == before


@pytest.mark.parametrize("words", ["tokenizer bpe a.txt --vocab-size 273 -q -o", "segment a.txt --json -o"])
def test_a_path_that_is_not_utf8_is_one_line(words: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "a.txt").write_text("今日は良い天気です。\n", encoding="utf8")
    code, name = cli._main([*words.split(), os.fsdecode(b"\xff\xfe")]), os.fsdecode(b"\xff\xfe")
    if code:
        assert (code, capsys.readouterr().err) == (2, "course: a path is not UTF-8; allowed: a path in UTF-8\n")
    assert {path.name for path in elsewhere.iterdir()} - {name} == {"a.txt"}


def test_a_source_may_have_a_name_in_shift_jis(elsewhere: Path) -> None:
    name = os.fsdecode("テキスト.txt".encode("shift_jis"))
    (elsewhere / name).write_text("今日は良い天気です。\n", encoding="utf8")
    command = [sys.executable, "-m", "course_lib.cli", "corpus", "webtext", name, "-o", "o.jsonl"]
    assert subprocess.run(command, cwd=elsewhere, capture_output=True, check=True).stderr == b""
    assert json.loads((elsewhere / "o.jsonl.report.json").read_text())["source"] == "?e?L?X?g.txt"


def test_status_of_no_folder_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._main(["scale", "status", ""]) == 2
    assert capsys.readouterr().err == "course: FOLDER: '' is not a path; allowed: a folder, local or s3://\n"


def test_a_path_with_nul_is_one_line(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "c.yaml").write_text('held_out: "a\\0b"\n')
    said = refused(capsys, "corpus aozora works -o b -c c.yaml -q", 2)
    assert "NUL" in said

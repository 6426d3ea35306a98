"""Nothing of the user's is ever lost: products and their marks, exchanged folders, inputs, cleaning."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from course_lib import cli, files, paths, unmarked
from course_lib.errors import CourseError, UsageError
from course_lib.workspace import archive, cleaning, manifests
from course_lib.workspace import products as workspace
from course_lib.workspace.products import Product


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make(target: Path, ours: bool = False, **contents: str) -> None:
    with files.atomic_folder(target, ours) as folder:
        for name, content in contents.items():
            path = folder / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf8")


def refused(target: Path, name: str) -> None:
    """A product does not replace the folder, the message names the file, and nothing is touched."""
    before = everything(target)
    with pytest.raises(UsageError) as caught, files.atomic_folder(target):
        raise AssertionError("the block must not run")
    assert str(caught.value) == (
        f"-o {target}: the folder holds other files: {name}; allowed: a new name, or a product to replace"
    )
    assert everything(target) == before and [path.name for path in target.parent.iterdir()] == [target.name]


# 1: what is a product


def test_the_mark_lists_what_the_course_wrote(tmp_path: Path) -> None:
    make(tmp_path / "o", a="1", in__b="2")
    assert json.loads((tmp_path / "o" / files.FILE_LIST).read_text()) == {"files": ["a", "in/", "in/b"]}
    make(tmp_path / "o", c="3")
    assert everything(tmp_path / "o") == {"c": b"3", files.FILE_LIST: b'{"files": ["c"]}\n'}


FOREIGN: dict[str, dict[str, Any]] = {
    "index.html": {"manifest.json": {"name": "A web app"}, "index.html": "<html>"},
    "background.js": {"manifest.json": {}, "background.js": "//"},
    "manifest.json": {"manifest.json": {"manifest_version": 3}},
    "thesis.txt": {"preparation.json": {"segmented": True, "marked": True}, "tokenizer.json": {}, "thesis.txt": "x"},
    "preparation.json": {"preparation.json": {"steps": ["wash", "cut"]}},
    "conversion.json": {"conversion.json": {"EUR": 1.08}},
    "encoding.json": {"encoding.json": ["utf8"], "x.npy": "x"},
    "README.md": {"preparation.json": {"segmented": True, "marked": True}, "README.md": "My notes"},
    "held_out.json": {"preparation.json": {"segmented": True, "marked": True}, "held_out.json": {}},
    "x.npy": {"x.npy": "x"},
    # what esbuild writes with --metafile
    "app.js": {"manifest.json": {"inputs": {}, "outputs": {"app.js": {"bytes": 1, "inputs": {}}}}, "app.js": "x"},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_that_merely_contains_a_file_of_that_name_is_no_product(tmp_path: Path, name: str) -> None:
    (tmp_path / "o").mkdir()
    for file, content in FOREIGN[name].items():
        (tmp_path / "o" / file).write_text(content if isinstance(content, str) else json.dumps(content))
    refused(tmp_path / "o", name)


@pytest.mark.parametrize("name", ["notes.txt", "in/notes.txt", "mine/notes.txt", ".hidden", "link", "日本語.txt"])
def test_a_file_that_the_mark_does_not_list_is_named(tmp_path: Path, name: str) -> None:
    make(tmp_path / "o", a="1", in__b="2")
    path = tmp_path / "o" / name
    path.parent.mkdir(exist_ok=True)
    if name == "link":
        path.symlink_to("a")
    else:
        path.write_text("x")
    refused(tmp_path / "o", name)


def test_a_folder_of_the_product_that_the_user_replaced_by_a_link_is_the_users(tmp_path: Path) -> None:
    make(tmp_path / "o", in__b="2")
    shutil.rmtree(tmp_path / "o/in")
    (tmp_path / "o/in").symlink_to(tempfile.gettempdir())
    refused(tmp_path / "o", "in")


@pytest.mark.parametrize("content", ["", "[]", '{"files": 3}', "{", "[" * 100_000])
def test_a_broken_mark_is_no_mark(tmp_path: Path, content: str) -> None:
    make(tmp_path / "o", a="1")
    (tmp_path / "o" / files.FILE_LIST).write_text(content)
    refused(tmp_path / "o", "a")


@pytest.mark.parametrize("name", [files.FILE_LIST, "preparation.json", "manifest.json", "README.md"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_device_is_no_mark(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "o").mkdir()
    if kind == "pipe":
        os.mkfifo(tmp_path / "o" / name)
    else:
        (tmp_path / "o" / name).symlink_to("/dev/zero")
    (tmp_path / "o/a").write_text("x")
    refused(tmp_path / "o", "README.md" if name == "README.md" else "a" if name == files.FILE_LIST else min("a", name))


EARLIER: dict[str, dict[str, Any]] = {
    "tokenizer": {"preparation.json": {"segmented": True, "marked": False}, "tokenizer.json": {}, "tokenizer.model": ""},
    "vocabulary": {"preparation.json": {"texts": 1, "entries": 2}, "vocab.txt": "", "emoji.json": {}},
    "export": {
        "preparation.json": {"segmented": True, "marked": True}, "config.json": {}, "model-00001-of-00002.safetensors": "",
        "README.md": "A GPT-2 of 1 parameters, trained from scratch on Japanese text.",
    },
    "ft": {"conversion.json": {"source": "m"}, "2-gpu/config.ini": "", "2-gpu/model.wte.bin": "", "tokenizer/vocab.txt": ""},
    "peft": {"conversion.json": {"task": "a"}, "adapter_config.json": {}, "adapter_model.safetensors": ""},
    "examples": {"encoding.json": {"examples": 1}, "x.npy": "", "document.npy": ""},
    "triton": {"manifest.json": {}, "fastertransformer/config.pbtxt": "", "fastertransformer/1/model.py": "",
               "fastertransformer/1/__pycache__/model.cpython-311.pyc": ""},
    "product": {"manifest.json": {"settings": {}, "inputs": {}, "outputs": {"in/text": {}}}, "in/text": ""},
    "empty": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", EARLIER)
def test_a_product_of_an_earlier_version_is_replaced_if_every_file_is_the_courses(tmp_path: Path, kind: str) -> None:
    for name, content in EARLIER[kind].items():
        path = tmp_path / "o" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    (tmp_path / "o").mkdir(exist_ok=True)
    make(tmp_path / "o", new="x")
    assert everything(tmp_path / "o").keys() == {"new", files.FILE_LIST}


def test_what_comes_into_the_folder_while_a_product_is_made_is_kept(tmp_path: Path) -> None:
    make(tmp_path / "o", a="1")
    with files.atomic_folder(tmp_path / "o") as folder:
        (folder / "b").write_text("2")
        (tmp_path / "o" / "mine").write_text("x")
    assert everything(tmp_path / "o").keys() == {"b", "mine", files.FILE_LIST}
    refused(tmp_path / "o", "mine")


def test_a_path_of_the_courses_own_keeps_the_users_files_too(tmp_path: Path) -> None:
    make(tmp_path / "o", ours=True, a="1")
    for name in ("mine", "in/mine", "b"):
        (tmp_path / "o" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "o" / name).write_text("mine")
    make(tmp_path / "o", ours=True, b="2")
    found = everything(tmp_path / "o")
    assert json.loads(found.pop(files.FILE_LIST)) == {"files": ["b"]}
    assert found == {"b": b"2", "b~": b"mine", "mine": b"mine", "in/mine": b"mine"}


# 2: one step, or two that can be undone

KILLED = """
import os, signal, sys
from pathlib import Path
from course_lib import files
files._exchange = lambda *_: False
real, calls = os.replace, []
def replace(*paths):
    calls.append(paths)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    real(*paths)
files.os.replace = replace
with files.atomic_folder(Path(sys.argv[1])) as folder:
    (folder / "new").write_text("new")
"""


@pytest.mark.parametrize(("call", "left"), [(1, {"o"}), (2, set()), (3, {"o"})])
def test_a_kill_between_the_renames_loses_nothing(tmp_path: Path, call: int, left: set[str]) -> None:
    make(tmp_path / "o", old="old")
    environment = os.environ | {"PYTHONPATH": str(paths.REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "o", str(call)], env=environment)
    assert done.returncode == (-signal.SIGKILL if call < 3 else 0)
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} == left
    # What a next run sees before it does anything.
    with pytest.raises(CourseError, match="stop"), files.atomic_folder(tmp_path / "o"):
        raise CourseError("stop")
    assert everything(tmp_path / "o").keys() == {"new" if call == 3 else "old", files.FILE_LIST}
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


def test_a_restored_folder_never_replaces_what_the_user_put_there_meanwhile(tmp_path: Path) -> None:
    make(tmp_path / ".o.01234567.old", old="old")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine").write_text("x")
    with pytest.raises(UsageError, match="other files: mine"):
        make(tmp_path / "o", new="new")
    assert (tmp_path / ".o.01234567.old/old").is_file() and (tmp_path / "o" / "mine").is_file()


def test_a_rename_that_fails_restores_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "o", old="old")
    real, calls = os.replace, list[Any]()

    def second_fails(*names: Any) -> None:
        calls.append(names)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*names)

    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "o", new="new")
    assert everything(tmp_path / "o").keys() == {"old", files.FILE_LIST} and len(list(tmp_path.iterdir())) == 1


def test_linux_exchanges_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not files._exchange(tmp_path / "one", tmp_path / "other"):
        pytest.skip("no renameat2 on this system")
    assert (tmp_path / "one" / "other").exists() and (tmp_path / "other" / "one").exists()


# 3: -o and what a command reads


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("今日は良い天気です。\n\n明日は雨が降るでしょう。\n", encoding="utf8")
    Path("b.txt").write_text("ログイン\n", encoding="utf8")
    Path("model").mkdir()
    Path("model/config.json").write_text("{}")
    Path("c.yaml").write_text("filters:\n  min_chars: 10\n")
    Path("link.txt").symlink_to("a.txt")
    os.link("a.txt", "hard.txt")
    return tmp_path


INPUTS = (
    "segment b.txt -o model/../b.txt",
    "segment a.txt -o hard.txt",
    "corpus webtext a.txt -o c.yaml -c c.yaml",
    "evaluate model --data a.txt -o link.txt",
    "evaluate model --data b.txt --trigram a.txt -o a.txt",
    "evaluate model --data b.txt --training a.txt -o a.txt",
    "evaluate model --minimal-pairs a.txt -o a.txt",
    "evaluate model --tasks c.yaml -o c.yaml",
    "evaluate model --data a.txt -o model/config.json",
    "ft export model -o b.txt --prefix name=b.txt",
    "segment a.txt b.txt -o b.txt",
    "convert megatron a.txt -o model --tokenizer model",
    "gguf export model -o model/config.json",
)


@pytest.mark.parametrize("words", INPUTS)
def test_no_command_writes_over_what_it_reads(words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(folder)
    assert cli._main(words.split()) == 2
    assert ": is the input " in capsys.readouterr().err and everything(folder) == before


def test_standard_input_may_be_the_file_that_the_product_would_replace(folder: Path) -> None:
    words = [sys.executable, "-m", "course_lib.cli", "segment", "-", "-o"]
    before = everything(folder)
    for target in ("a.txt", "hard.txt", "link.txt"):
        with open("a.txt", "rb") as text:
            done = subprocess.run([*words, target], stdin=text, capture_output=True, text=True, check=False)
        assert (done.returncode, everything(folder)) == (2, before) and f"-o {target}: is the input" in done.stderr
    with open("a.txt", "rb") as text:
        assert subprocess.run([*words, "new.txt"], stdin=text, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("command", ["webtext", "wikipedia"])
def test_the_report_next_to_a_product_replaces_no_input(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("o.jsonl.report.json").symlink_to("a.txt")
    Path("p.jsonl.report.json").write_text("words\n")
    Path("q.jsonl.report.json").mkdir()
    before = everything(folder)
    for words in ("a.txt -o o.jsonl", "a.txt p.jsonl.report.json -o p.jsonl", "a.txt -o q.jsonl"):
        assert cli._main(["corpus", command, *words.split()]) == 2
        assert ".report.json" in capsys.readouterr().err and everything(folder) == before


def test_a_result_may_be_a_new_file_in_the_models_folder(tmp_path: Path) -> None:
    from course_lib.command_line import evaluate

    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "notes.json").write_text('{"models": []}')
    (model / "old.json").write_text(json.dumps(dict.fromkeys(("data", "window", "stride", "models"))))
    allowed = {name: evaluate._may_hold(model, model / name) for name in ("new.json", "old.json", "in/new.json")}
    assert all(allowed.values()), allowed
    refused = {name: evaluate._may_hold(model, model / name) for name in ("config.json", "notes.json", ".", "..")}
    assert not any(refused.values()), refused


def test_neighbours_of_inputs_are_written(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli._main(["segment", "a.txt", "-o", "a.seg"]) == 0
    assert cli._main(["segment", "a.txt", "-o", "-"]) == 0
    assert cli._main(["segment", "a.txt", "-o", "a.seg"]) == 0
    assert "is the input" not in capfd.readouterr().err


def test_a_command_that_fails_leaves_the_earlier_product(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("q.txt").write_bytes(b"earlier")
    for text in (" \n\n", "{}"):
        Path("blank.txt" if text != "{}" else "blank.jsonl").write_text(text)
    for words in ("segment blank.txt -o q.txt", "corpus webtext blank.txt -o q.txt", "segment blank.jsonl -o q.txt"):
        assert cli._main(words.split()) == 1
    assert Path("q.txt").read_bytes() == b"earlier"
    assert "blank.txt: no text in it, only white space" in capsys.readouterr().err


def test_an_archive_does_not_replace_a_file_that_it_packs(folder: Path) -> None:
    product = Product("a/b", lambda folder, *_: {"bytes": (folder / "out").write_text("x")})
    product.path()
    for target in (product.folder / "out", product.folder / "new.zip", product.folder):
        with pytest.raises(UsageError, match="is the input"):
            archive.pack([product], target)
    assert product.state().kind == "fresh"


# 4: what is cleaned


def listing(folder: Path, **outputs: bytes) -> None:
    from hashlib import sha256

    folder.mkdir(parents=True, exist_ok=True)
    facts = {name: {"bytes": len(content), "sha256": sha256(content).hexdigest()} for name, content in outputs.items()}
    (folder / "manifest.json").write_text(json.dumps({"settings": {}, "inputs": {}, "outputs": facts}))


@pytest.mark.parametrize("form", ["absolute", "up", "link"])
def test_clean_stays_inside_the_workspace(tmp_path: Path, form: str) -> None:
    victim, folder = tmp_path / "victim", workspace.root() / "a/product"
    victim.write_bytes(b"years of work")
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    name = {"absolute": str(victim), "up": os.path.relpath(victim, folder), "link": "link/victim"}[form]
    listing(folder, **{name: b"years of work"})
    found = cleaning.removal(["a"])
    found.remove()
    assert victim.read_bytes() == b"years of work"


def test_a_chapter_behind_a_link_is_not_in_the_workspace(tmp_path: Path) -> None:
    listing(tmp_path / "elsewhere/product", out=b"x")
    (tmp_path / "elsewhere/product/out").write_bytes(b"x")
    (workspace.root()).mkdir(parents=True)
    (workspace.root() / "a").symlink_to(tmp_path / "elsewhere")
    found = cleaning.removal(["a"], runs=True)
    assert found.paths == [] and [path.name for path in found.stays] == ["product"]


def test_an_archive_with_paths_of_somebody_else_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"years of work")
    product = Product("a/product", lambda *_: {})
    listing(tmp_path / "made", **{str(victim): b"years of work"})
    with ZipFile(tmp_path / "crafted.zip", "w") as crafted:
        crafted.write(tmp_path / "made/manifest.json", "a/product/manifest.json")
    with pytest.raises(CourseError, match="is not a complete archive"):
        archive.unpack([product], tmp_path / "crafted.zip")
    assert victim.exists() and not product.folder.exists()


@pytest.fixture
def locked() -> Iterator[Callable[[Path], None]]:
    """A function that locks a file or folder as a running command does."""
    opened = []

    def hold(path: Path) -> None:
        opened.append(os.open(path, os.O_RDONLY))
        fcntl.flock(opened[-1], fcntl.LOCK_EX)

    yield hold
    for descriptor in opened:
        os.close(descriptor)


def test_clean_leaves_what_a_running_command_uses(locked: Callable[[Path], None]) -> None:
    chapter = workspace.root() / "a"
    for name in ("runs/0123456789ab", "runs/0123456789ac", ".built.01234567.tmp", ".left.01234567.tmp", ".notes.tmp"):
        (chapter / name).mkdir(parents=True)
    locks = [chapter / name for name in (".building.lock", ".done.lock", "runs/0123456789ab/.lock")]
    for path in locks:
        path.touch()
    (chapter / ".mine.lock").write_text("a lock of some other program")
    listing(chapter / "building")
    for path in (locks[0], locks[2], chapter / ".built.01234567.tmp"):
        locked(path)
    found = cleaning.removal(["a"], runs=True)
    used = {str(path.relative_to(chapter)) for path in found.used}
    assert used == {"building", ".building.lock", "runs/0123456789ab", ".built.01234567.tmp"}
    found.remove()
    left = {str(path.relative_to(chapter)) for path in chapter.rglob("*")}
    assert left == {
        "building", "building/manifest.json", ".building.lock", "runs", "runs/0123456789ab", "runs/0123456789ab/.lock",
        ".built.01234567.tmp", ".notes.tmp", ".mine.lock",
    }  # fmt: skip


def test_clean_leaves_copies_of_checkpoints_that_the_user_made() -> None:
    run = workspace.root() / "a/runs/0123456789ab"
    for name in ("checkpoint-20/weights", "checkpoint-best/weights", "checkpoint-20.bak/in/weights", "notes.txt"):
        path = run / "checkpoints" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (run / "config.yaml").write_text("x")
    cleaning.removal(["a"], runs=True).remove()
    left = {"checkpoint-best/weights", "checkpoint-20.bak/in/weights", "notes.txt"}
    assert everything(run).keys() == {f"checkpoints/{name}" for name in left}


def test_clean_looks_again_before_it_removes(locked: Callable[[Path], None]) -> None:
    run = workspace.root() / "a/runs/0123456789ab"
    run.mkdir(parents=True)
    (run / ".lock").touch()
    found = cleaning.removal(["a"], runs=True)
    locked(run / ".lock")
    found.remove()
    assert run.exists()


def test_an_unpacked_product_keeps_the_users_files(tmp_path: Path) -> None:
    product = Product("a/b", lambda folder, *_: {"bytes": (folder / "out").write_text("x")})
    product.path()
    archive.pack([product], tmp_path / "packed.zip")
    (product.folder / "notes.txt").write_text("mine")
    (product.folder / "out").unlink()
    archive.unpack([product], tmp_path / "packed.zip")
    assert everything(product.folder).keys() == {"out", "manifest.json", "notes.txt", files.FILE_LIST}
    cleaning.removal(["a"]).remove()
    assert everything(product.folder) == {"notes.txt": b"mine"}


@pytest.mark.parametrize(
    "change",
    [{"outputs": []}, {"outputs": {"out": 3}}, {"outputs": {"out": {"bytes": "1"}}}, {"inputs": 3}, {"counts": []},
     {"inputs": {"x": {"bytes": 1}}}, {"seconds": "long"}, {"seconds": float("nan")}, {"seconds": 1e308}, {"seconds": -1},
     {"outputs": {"\ud800": {"bytes": 1, "sha256": ""}}}, {"code": 1}, {"settings": None}, {"built": 2}],
)  # fmt: skip
def test_a_manifest_changed_by_hand_is_damaged(change: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder = workspace.root() / "corpus/wikipedia"
    listing(folder)
    path = folder / "manifest.json"
    assert manifests.read(folder) is not None
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert manifests.read(folder) is None
    assert cli._main(["status"]) == 0 and "manifest.json is damaged" in capsys.readouterr().out


# 19 and 21: permissions, mounts, and the folder of a user


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
def test_permissions_of_what_is_replaced_stay(tmp_path: Path, mode: int) -> None:
    (tmp_path / "o").write_text("secret")
    (tmp_path / "o").chmod(mode)
    with files.atomic_write(tmp_path / "o") as file:
        temporary = next(path for path in tmp_path.iterdir() if path.name != "o")
        assert stat.S_IMODE(temporary.stat().st_mode) == mode | 0o200
        file.write(b"new")
    assert stat.S_IMODE((tmp_path / "o").stat().st_mode) == mode


def test_permissions_of_a_product_folder_stay(tmp_path: Path) -> None:
    make(tmp_path / "o", a="1", b="2")
    (tmp_path / "o").chmod(0o700)
    (tmp_path / "o/a").chmod(0o600)
    make(tmp_path / "o", a="3", b="4", c="5")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "o").iterdir()}
    assert stat.S_IMODE((tmp_path / "o").stat().st_mode) == 0o700
    assert (modes["a"], modes["b"], modes["c"]) == (0o600, 0o644, 0o644)


def test_a_mount_point_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "f").touch()
    monkeypatch.setattr(files, "is_mount", lambda path: path.name in ("m", "f"))
    for product, name in ((files.atomic_folder, "m"), (files.atomic_write, "f")):
        with pytest.raises(UsageError, match=f"^-o {tmp_path / name}: is a mount point"), product(tmp_path / name):
            raise AssertionError("the block must not run")
    make(tmp_path / "m/inside", a="1")


def test_mounts_are_known_as_the_system_has_them(tmp_path: Path) -> None:
    assert files.is_mount(Path("/proc")) and files.is_mount(Path("/")) and not files.is_mount(tmp_path)


def test_a_users_temporary_folder_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = files.user_folder("course-scale-x")
    assert folder.name == f"course-scale-x-{os.getuid()}" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    assert stat.S_IMODE(files.user_folder("course-scale-x").stat().st_mode) == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(CourseError, match="belongs to another user"):
        files.user_folder("course-scale-x")


@pytest.mark.parametrize("name", ["/", "loop", "loop/x", "file/x", "x" * 300])
def test_what_cannot_be_a_folder_is_one_line(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    for product in (files.atomic_folder, files.atomic_write):
        with pytest.raises((CourseError, OSError)), product(Path(name)):
            raise AssertionError("the block must not run")


def test_the_table_of_earlier_products_knows_what_the_mark_does_not(tmp_path: Path) -> None:
    assert not unmarked.files_of(tmp_path)("manifest.json")


# 18: records that the user changed by hand


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not readable as JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "segmented: the key is missing; allowed: true or false"),
        ('{"segmented": "yes", "marked": true}', 'segmented: found "yes"; allowed: true or false'),
        ('{"segmented": true, "marked": 1}', "marked: found 1; allowed: true or false"),
        ('{"segmented": true, "marked": null}', "marked: found null; allowed: true or false"),
    ],
)
def test_a_preparation_changed_by_hand_is_one_line(tmp_path: Path, content: str, problem: str) -> None:
    from course_lib.subword import folder

    (tmp_path / "preparation.json").write_text(content)
    with pytest.raises(CourseError) as caught:
        folder.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'preparation.json'}: {problem}")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"examples": "8"}, 'examples: found "8"; allowed: a whole number'),
        ({"num_context": True}, "num_context: found true; allowed: a whole number"),
        ({"classes": [1]}, "classes: found [1]; allowed: an object"),
        ({"largest_id": None}, "largest_id: found null; allowed: a whole number"),
    ],
)
def test_an_encoding_changed_by_hand_is_one_line(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    from course_lib.gptsan.examples import Examples

    content = {"examples": 8, "num_context": 4, "largest_id": 9, "classes": None}
    (tmp_path / "encoding.json").write_text(json.dumps(content | change))
    with pytest.raises(CourseError) as caught:
        Examples(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'encoding.json'}: {problem}"

"""The name of the course's model: its folder, another folder of that name, and an installed course without its weights."""

import shutil
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from course_lib import __version__, cli, files, paths
from course_lib.checkpoints import aozora
from course_lib.command_line import command_table
from course_lib.command_line.from_options import notes
from course_lib.command_line.options import Note
from course_lib.errors import CourseError
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.files import beside
from course_lib.settings import config

CHECKOUT = paths.REPOSITORY / "data" / "aozora"


def test_the_name_means_the_folder_of_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert aozora.named(Path("aozora")) == aozora.folder() == CHECKOUT
    assert aozora.named(Path("other")) == Path("other") and aozora.named(Path("a/aozora")) == Path("a/aozora")
    assert files.sha256(CHECKOUT / aozora.WEIGHTS) == aozora.DIGEST
    shape = config.build(PrefixConfig, {"model": {"base": "aozora"}}).model.base_shape()
    assert (shape.num_layers, shape.hidden_size, shape.vocab_size) == (6, 512, 12000)


def test_a_folder_of_that_name_here_wins_with_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("aozora").mkdir()
    assert aozora.named(Path("aozora")) == Path("aozora")
    said = "aozora: the folder of this name here, not the model that comes with the course\n"
    assert capsys.readouterr().err == said
    assert cli._main(["generate", "aozora", "昔々、"]) == 1
    assert capsys.readouterr().err.splitlines()[:2] == [
        said.strip(),
        "course: aozora: not a model folder; it has no config.json (`course export` writes one)",
    ]
    assert cli._main(["generate", "aozora", "昔々、", "-q"]) == 1
    assert said not in capsys.readouterr().err
    # data/ has the model itself.
    monkeypatch.chdir(CHECKOUT.parent)
    assert aozora.named(Path("aozora")) == Path("aozora") and capsys.readouterr().err == ""


def test_one_line_on_the_model_and_none_on_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aozora.tell(tmp_path)
    assert capsys.readouterr().err == ""
    aozora.tell(CHECKOUT)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("aozora: ") and line.endswith(str(CHECKOUT / "README.md"))


def test_commands_that_take_a_model_take_its_name() -> None:
    import inspect

    taking = {
        words
        for words, command in command_table.COMMANDS.items()
        if any(Note.MODEL in notes(each) for each in inspect.signature(command.function()).parameters.values())
    }
    assert taking == {
        "ask", "convert megatron", "ct2 export", "evaluate", "ft export", "ft import", "generate", "gguf export",
        "prefix convert", "prefix generate", "push", "serve", "tokenize",
    }  # fmt: skip


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An installed course without the weights, and the folder of a server in the place of GitHub."""
    library, server = tmp_path / "site-packages", tmp_path / "server"
    shutil.copytree(CHECKOUT, library / "data" / "aozora", ignore=shutil.ignore_patterns(aozora.WEIGHTS))
    (library / "data" / "aozora" / "prefixes").mkdir(exist_ok=True)
    (library / "data" / "aozora" / "prefixes" / "smile.safetensors").write_bytes(b"a prefix")
    release = server / "releases" / "download" / f"v{__version__}"
    release.mkdir(parents=True)
    monkeypatch.setattr(paths, "REPOSITORY", library)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.chdir(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(server))) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        address = f"Repository, http://127.0.0.1:{listening.server_port}"
        monkeypatch.setattr(aozora, "metadata", lambda _: {"Project-URL": address})
        yield release
        listening.shutdown()


def test_an_installed_course_takes_the_weights_of_its_release(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / aozora.ASSET).write_bytes(b"weights")
    monkeypatch.setattr(aozora, "DIGEST", files.sha256(installed / aozora.ASSET))
    found = aozora.folder()
    assert found == paths.root().parent / "published" / "aozora" and aozora.is_ours(found)
    assert (found / aozora.WEIGHTS).read_bytes() == b"weights"
    assert (found / "config.json").read_bytes() == (CHECKOUT / "config.json").read_bytes()
    assert beside(found)["smile"].read_bytes() == b"a prefix"
    # Files of another version are brought in step; then a call needs no server.
    (found / aozora.WEIGHTS).write_bytes(b"of 1.0.0")
    (found / "config.json").write_text("{}")
    assert aozora.folder() == found and (found / aozora.WEIGHTS).read_bytes() == b"weights"
    (installed / aozora.ASSET).unlink()
    assert aozora.named(Path("aozora")) == found
    assert (found / "config.json").read_bytes() == (CHECKOUT / "config.json").read_bytes()


def test_other_weights_and_none_are_refused_in_one_line(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (installed / aozora.ASSET).write_bytes(b"weights")
    place = paths.root().parent / "published" / "aozora"
    with pytest.raises(CourseError, match="its SHA-256 is not that of this version's weights; put data/aozora/model"):
        aozora.folder()
    assert not (place / aozora.WEIGHTS).exists()
    (installed / aozora.ASSET).unlink()
    assert cli._main(["generate", "aozora", "昔々、"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "aozora.safetensors cannot be used: the server answered 404; put" in line and line.endswith(f"into {place}")


def test_the_address_is_that_of_the_other_assets() -> None:
    """In an installed course the address comes from its metadata, which are those of pyproject.toml."""
    project = tomllib.loads((paths.REPOSITORY / "pyproject.toml").read_text(encoding="utf8"))["project"]
    assert list(project["urls"]) == ["Repository"]
    page = (paths.REPOSITORY / "docs/profiles.md").read_text(encoding="utf8")
    assert f"{project['urls']['Repository']}/releases/latest/download" in page

"""Verbs of chapter 7: `course serve` and `course ask`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib import options
from course_lib.errors import UsageError
from course_lib.serving.ask_config import AskConfig

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="a folder of `course ft export`")]


def register_serve(app: typer.Typer) -> None:
    """Adds these verbs to the `course` command."""
    app.command("serve")(serve)
    app.command("ask", epilog=options.epilog(AskConfig))(ask)


def serve(
    folder: Folder,
    http_port: Annotated[int, typer.Option("--http-port", min=1, max=65535)] = 8000,
    grpc_port: Annotated[int, typer.Option("--grpc-port", min=1, max=65535)] = 8001,
    address: Annotated[str, typer.Option("--address", help="0.0.0.0 lets other machines in; there is no password")] = "127.0.0.1",
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="longest start [s]")] = 300,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="of the model; default: the cores of this machine")] = None,
    log: Annotated[Path | None, typer.Option("--log", metavar="FILE", help="what Triton says; default: shown if it fails")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="REPO", help="only write a Triton model repository")] = None,
    backend: Annotated[Literal["python", "fastertransformer"], typer.Option("--backend", help="of the repository: this course's reader, or the original")] = "python",
    weights: Annotated[str | None, typer.Option("--weights", metavar="PATH", help="where the repository's server sees DIR's weights; default: where they are")] = None,
    show: Annotated[bool, typer.Option("--print", help="only print the commands that serve DIR from NVIDIA's container")] = False,
) -> None:  # fmt: skip
    """Serve an exported folder with Triton on this machine (HTTP and gRPC) until Ctrl-C."""
    from course_lib.serving import repository, server

    if (backend != "python" or weights) and (show or not output):
        raise UsageError(
            "--backend, --weights: need -o REPO without --print; else the Python backend serves DIR where it is"
        )
    if show:
        print(server.container_command(folder, output or Path("REPO")))
    elif output:
        print(
            f"Triton model {repository.MODEL!r} for backend {backend} → {repository.write(folder, output, backend, weights)}"
        )
    else:
        server.serve(folder, http_port, grpc_port, address, timeout, log, threads)


def ask(
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="raw Japanese texts: one batch")],
    folder: Annotated[Path | None, typer.Option("--folder", metavar="DIR", help="what is served: for its tokenizer and the names of its tasks")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", metavar="T", help="tokenizer folder; default: DIR/tokenizer")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="NAME|ID", help="prefix to use; default: none")] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="HOST:PORT", help="default: this machine, 8001 (gRPC) or 8000 (HTTP)")] = None,
    protocol: Annotated[Literal["grpc", "http"], typer.Option("--protocol")] = "grpc",
    output_length: Annotated[int | None, typer.Option("--output-length", min=1, help="most to write [tokens]; default: 32")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="same seed, same text; default: 0")] = None,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:  # fmt: skip
    """Let a served model continue texts, with the prefix of a task or without."""
    settings = options.given(AskConfig, config, overrides, output_length=output_length, seed=seed)
    number = _task(task, folder)
    from course_lib.serving import layout

    place = tokenizer or (layout.find(folder)[0].resolve().parent / layout.TOKENIZER if folder else None)
    if place is None:
        raise UsageError("--tokenizer: needed, or --folder DIR")
    if not place.is_dir():
        raise UsageError(f"--tokenizer: {place}: no such folder")
    from course_lib.pretrain import text_codec
    from course_lib.serving import client

    for reply in client.ask(client.Client(url, protocol), text_codec.load(place), prompts, settings, number):
        for continuation in reply.continuations:
            print(reply.prompt + continuation)


def _task(task: str | None, folder: Path | None) -> int | None:
    """The number of a task given by name or number. Raises UsageError for a name that DIR does not have."""
    if task is None:
        return None
    if folder is None:
        if task.isdecimal():
            return int(task)
        raise UsageError(f"--task {task}: a name needs --folder DIR; allowed without: a number")
    from course_lib.serving import ini, layout

    names = [found.name for found in ini.read(*layout.find(folder))[0].tasks]
    if task in names:
        return names.index(task)
    if task.isdecimal() and int(task) < len(names):
        return int(task)
    allowed = ", ".join(f"{name} ({number})" for number, name in enumerate(names)) or "none, DIR has no tasks"
    raise UsageError(f"--task {task}: no such task in {folder}; allowed: {allowed}")

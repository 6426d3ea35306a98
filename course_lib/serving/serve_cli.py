"""The `course serve` and `course ask` commands for chapter 7."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.command_line import options
from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.serving.ask_config import AskConfig


def serve(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]DIR...",
            help="folders written by `course ft export`; NAME is the model's name in requests, needed for several DIRs",
        ),
    ],
    http_port: Annotated[int, typer.Option("--http-port", min=1, max=65535)] = 8000,
    grpc_port: Annotated[int, typer.Option("--grpc-port", min=1, max=65535)] = 8001,
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", min=1, max=65535, help="of Triton's metrics, on this machine only")
    ] = 8002,
    address: Annotated[
        str, typer.Option("--address", help="address to listen on; 0.0.0.0 admits other machines, without a password")
    ] = "127.0.0.1",
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="time limit for the start [s]")] = 300,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="CPU threads of each instance; default: its share of the cores"),
    ] = None,
    instances: Annotated[
        int, typer.Option("--instances", min=1, help="processes that load each model, to answer more requests")
    ] = 1,
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="requests that may wait for a model; further ones are refused")
    ] = 1024,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit", min=0.001, help="time that a request may wait, and then may run [s]; default: no limit"
        ),
    ] = None,
    drain: Annotated[
        float, typer.Option("--drain", min=1, help="time to answer the requests in progress when stopped [s]")
    ] = 30,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Triton's log; default: shown only if Triton fails")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="REPO", help="write a Triton model repository, and do not serve it"),
    ] = None,
    backend: Annotated[
        Literal["python", "fastertransformer"],
        typer.Option(
            "--backend", help="backend of the repository: python is this course's reader, fastertransformer is NVIDIA's"
        ),
    ] = "python",
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="PATH",
            help="path of DIR's weights as the repository's server sees it; default: their path now",
        ),
    ] = None,
    show: Annotated[
        bool,
        typer.Option("--print", help="print the commands that serve DIR from NVIDIA's container, and do nothing else"),
    ] = False,
) -> None:
    """Serve exported folders with Triton on this machine (HTTP and gRPC) until Ctrl-C."""
    from course_lib.serving import container, repository, server

    if (backend != "python" or weights) and (show or not output):
        raise UsageError(
            "--backend, --weights: need -o REPO and no --print; without -o the Python backend serves DIR itself"
        )
    limits = repository.Limits(instances, queue, time_limit)
    if backend != "python" and limits != repository.Limits():
        raise UsageError("--instances, --queue, --time-limit: need --backend python")
    models = repository.named(folders)
    if show:
        if len(models) > 1:
            raise UsageError(f"--print: {len(models)} folders are not allowed; allowed: one DIR")
        options = ["--instances", str(instances), "--queue", str(queue)]
        options += ["--time-limit", f"{time_limit:g}"] if time_limit else []
        print(container.commands(next(iter(models.values())), output or Path("REPO"), options))
    elif output:
        for model in repository.write(models, output, backend, weights, limits):
            print(
                tr(
                    "Triton model {name!r} for backend {backend} → {folder}",
                    name=model.name,
                    backend=backend,
                    folder=model,
                )
            )
    else:
        server.serve(
            server.running(models, http_port, grpc_port, metrics_port, address, timeout, log, threads, limits, drain)
        )


def ask(
    prompts: Annotated[
        list[str], typer.Argument(metavar="PROMPT...", help="raw Japanese texts, processed as one batch")
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="the served folder, for its tokenizer and the names of its tasks"),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", metavar="T", help="tokenizer folder; default: DIR/tokenizer")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="NAME|ID", help="prefix to use; default: none")] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="HOST:PORT", help="default: this machine, 8000 (HTTP) or 8001 (gRPC)")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="name of the model, if the server has several")
    ] = None,
    protocol: Annotated[
        Literal["http", "grpc"], typer.Option("--protocol", help="grpc needs pip install 'tritonclient[grpc]'")
    ] = "http",
    output_length: Annotated[
        int | None,
        typer.Option("--output-length", min=1, help="maximum length of the continuation [tokens]; default: 32"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, help="seed of the random generator; the same seed gives the same text; default: 0"
        ),
    ] = None,
    config: options.Config = None,
    overrides: options.Set = None,
) -> None:
    """Continue texts with a served model, with the prefix of a task or without."""
    settings = options.given(AskConfig, config, overrides, output_length=output_length, seed=seed)
    task_number = _task(task, folder)
    from course_lib.serving import layout

    tokenizer_folder = tokenizer or (layout.find(folder)[0].resolve().parent / layout.TOKENIZER if folder else None)
    if tokenizer_folder is None:
        raise UsageError("--tokenizer: needed, or --folder DIR")
    if not tokenizer_folder.is_dir():
        raise UsageError(f"--tokenizer: {tokenizer_folder}: no such folder")
    from course_lib.pretrain import text_codec
    from course_lib.serving import client

    codec = text_codec.load(tokenizer_folder)
    asked = client.Client(url, protocol, model=model)
    # A server on another machine names a folder of that machine.
    if folder and (served := asked.served_folder()) and served.is_dir() and not served.samefile(layout.find(folder)[0]):
        raise UsageError(f"--folder: {folder} is not allowed; allowed: the folder that is served, {served}")
    for texts in client.ask(asked, codec, prompts, settings, task_number):
        for generated in texts:
            print(generated.text)


def _task(task: str | None, folder: Path | None) -> int | None:
    """Return the index of a task given by name or index. Raises UsageError if DIR has no such task."""
    if task is None:
        return None
    if folder is None:
        if task.isdecimal():
            return int(task)
        raise UsageError(f"--task {task}: a name needs --folder DIR; allowed without --folder: a number")
    from course_lib.serving import ini, layout

    names = [found.name for found in ini.read(*layout.find(folder))[0].tasks]
    if task in names:
        return names.index(task)
    if task.isdecimal() and int(task) < len(names):
        return int(task)
    allowed = ", ".join(f"{name} ({number})" for number, name in enumerate(names)) or "none, DIR has no tasks"
    raise UsageError(f"--task {task}: no such task in {folder}; allowed: {allowed}")

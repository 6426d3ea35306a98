"""Commands for chapter 7: FasterTransformer folders, a Triton server and its client, CTranslate2, GGUF."""

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from course_lib.checkpoints import aozora
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.command_line.from_options import FromOptions
from course_lib.command_line.models import Continued, continued, tell_own
from course_lib.command_line.options import Note, Output, Prompts, output, path
from course_lib.command_line.output import Shown
from course_lib.errors import CourseError, UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.language.words import tr, tr_noop
from course_lib.serving.config import AskConfig, Quantization

# Arguments of several commands.
Model = Annotated[
    Path,
    Argument(metavar="MODEL", help="Hugging Face folder of a GPT-NeoX or GPT-2, or aozora", parser=path),
    Note.MODEL,
]
FtFolder = Annotated[
    Path,
    Argument(metavar="FOLDER", help="FasterTransformer folder N-gpu, or the folder that holds it", parser=path),
]


def ft_export(
    model: Model,
    target: Output,
    *,
    tensor_parallel: Annotated[
        int, Option("--tensor-parallel", min=1, help="number of ranks (GPUs) that share the model")
    ] = 1,
    dtype: Annotated[NumberFormat, Option("--dtype", help="number format of the weights")] = "fp32",
    prefix: Annotated[
        list[str] | None,
        Option("--prefix", help="[NAME=]FILE of a task; repeatable; NAME= : a task without a prefix"),
        Note.NAMES_FILE,
    ] = None,
    name: Annotated[
        str | None, Option("--name", help="model_name in config.ini; default: the name of MODEL's folder")
    ] = None,
    upstream_bias_scaling: Annotated[
        bool,
        Option("--upstream-bias-scaling", help="GPT-NeoX: divide biases by N even if the engine adds them once"),
    ] = False,
    upstream_ini: Annotated[
        bool, Option("--upstream-ini", help="GPT-2: omit layernorm_eps and activation_type from config.ini")
    ] = False,
    upstream_head: Annotated[
        bool, Option("--upstream-head", help="GPT-2: omit an output layer that is not the embedding")
    ] = False,
) -> object:
    """Export a model, with prefixes as its tasks, to a FasterTransformer folder.

    Corrects three errors of FasterTransformer's converters; the --upstream options keep them.
    """
    from course_lib.serving.export import export, named
    from course_lib.serving.ft_source import Corrections

    corrections = Corrections(not upstream_bias_scaling, not upstream_ini, not upstream_head)
    return export(model, target, tensor_parallel, dtype, [*map(named, prefix or [])], corrections, name)


def ft_import(
    folder: FtFolder,
    target: Output,
    *,
    tokenizer: Annotated[
        Path | None,
        Option("--tokenizer", help="tokenizer folder; default: FOLDER/tokenizer", parser=path),
        Note.MODEL,
    ] = None,
    activation: Annotated[
        str | None, Option("--activation", help="activation function; default: gelu, for GPT-2 gelu_new")
    ] = None,
    layer_norm_eps: Annotated[
        float | None, Option("--layer-norm-eps", help="epsilon of the layer norms; default: 1e-05")
    ] = None,
    rope_theta: Annotated[
        float | None, Option("--rope-theta", help="GPT-NeoX: base of the rotary positions; default: 10000")
    ] = None,
    max_positions: Annotated[
        int | None, Option("--max-positions", min=1, help="GPT-NeoX: context length [tokens]; default: 2048")
    ] = None,
    biases_divided_by: Annotated[
        int | None,
        Option("--biases-divided-by", help="GPT-NeoX: the converter's divisor of two biases: 1 or the ranks"),
    ] = None,
) -> object:
    """Turn a FasterTransformer folder back into a Hugging Face folder, bit for bit, with its prefixes as files.

    The options are for settings that the format does not store. Without an option, the conversion.json of `course ft
    export` is used, else config.ini, else the default of the model family; the output's conversion.json says which.
    """
    from course_lib.serving.ft_import import import_folder
    from course_lib.serving.ft_settings import Given

    given = Given(activation, layer_norm_eps, rope_theta, max_positions, biases_divided_by)
    return import_folder(folder, target, tokenizer, given)


def ft_inspect(
    folder: FtFolder,
    *,
    values: Annotated[bool, Option("--values", help="also check every number for NaN and infinity")] = False,
) -> object:
    """Compare a FasterTransformer folder with its config.ini, file by file."""
    from course_lib.serving.check import inspect

    found = inspect(folder, values)
    wrong = f"{folder}: {len(found.findings)} problem(s), listed above; the engine would run nevertheless"
    return Shown(found, found.summary(), wrong if found.findings else "")


def ct2_export(
    model: Model,
    target: Output,
    *,
    quantization: Annotated[
        Quantization,
        Option("--quantization", help="number format of the weights; float32 generates the same text as MODEL"),
    ] = "float32",
) -> object:
    """Export a model, with its tokenizer and its own settings of sampling, to the format of CTranslate2."""
    _require_ctranslate2()
    from course_lib.serving.ct2 import export

    return export(model, target, quantization)


def ct2_generate(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="folder written by `course ct2 export`", parser=path)],
    prompts: Prompts,
    settings: Annotated[GenerateConfig, FromOptions()],
    *,
    threads: Annotated[int, Option("--threads", min=0, help="threads per batch; 0: CTranslate2's choice")] = 0,
) -> list[Continued]:
    """Continue texts with CTranslate2.

    strategy=beam, repetition_penalty and no_repeat_ngram_size are not available, and not taken from the model's own
    settings.
    """
    _require_ctranslate2()
    from course_lib.serving.ct2_generate import Ct2Generator

    generator = Ct2Generator(folder, threads)
    tell_own(settings, generator.completed(settings))
    return continued(prompts, generator.generate(prompts, settings))


def gguf_export(model: Model, target: Output) -> object:
    """Export a model to one GGUF file in single precision, for llama.cpp.

    Only activations that are GELU by tanh are possible. The file holds the tokens, but llama.cpp splits raw text in
    another way, without an error: send token ids.
    """
    if find_spec("gguf") is None:
        raise CourseError(tr("gguf: not installed; pip install 'gguf>=0.17'"))
    from course_lib.serving.gguf_export import export

    return export(model, target)


def _require_ctranslate2() -> None:
    if find_spec("ctranslate2") is None:
        raise CourseError(tr("ctranslate2: not installed; pip install 'ctranslate2>=4.8'"))


def serve(
    folder: Annotated[
        Path,
        Argument(
            metavar="FOLDER",
            help="FasterTransformer folder N-gpu, or the folder that holds it; with --openai a Hugging Face folder of "
            "a GPT-NeoX or GPT-2, or aozora",
            parser=path,
        ),
        Note.MODEL,
    ],
    target: Annotated[Path | None, output("write a Triton model repository, and do not serve it"), Note.PRODUCT] = None,
    *,
    port: Annotated[
        int,
        Option(
            "--port", min=1, max=65533, help="port of HTTP; gRPC has the next one, Triton's metrics the one after it"
        ),
    ] = 8000,
    address: Annotated[
        str, Option("--address", help="address to listen on; 0.0.0.0 admits other machines, without a password")
    ] = "127.0.0.1",
    timeout: Annotated[float, Option("--timeout", min=1, help="time limit for the start [s]")] = 300,
    threads: Annotated[
        int | None,
        Option("--threads", min=1, help="CPU threads of each instance; default: its share of the cores"),
    ] = None,
    instances: Annotated[
        int, Option("--instances", min=1, help="processes that load the model, to answer more requests")
    ] = 1,
    queue: Annotated[int, Option("--queue", min=1, help="requests that may wait; further ones are refused")] = 1024,
    backend: Annotated[
        Literal["python", "fastertransformer"],
        Option("--backend", help="this course's reader, or NVIDIA's engine"),
    ] = "python",
    weights: Annotated[
        str | None,
        Option("--weights", help="path of the weights for the repository's server; default: their path now"),
    ] = None,
    openai: Annotated[
        bool, Option("--openai", help="speak OpenAI's protocol (completions), without Triton; each prefix is a model")
    ] = False,
    prefix: Annotated[
        list[Path] | None,
        Option("--prefix", help="with --openai: a prefix, beside those in FOLDER/prefixes; repeatable", parser=path),
    ] = None,
) -> object:
    """Serve a model on this machine until Ctrl-C: an exported folder with Triton, or any folder with --openai."""
    if openai:
        given = {"-o": target, "--threads": threads, "--instances": instances != 1, "--weights": weights,
                 "--backend": backend != "python", "--timeout": timeout != 300}  # fmt: skip
        if triton := [name for name, value in given.items() if value]:
            raise UsageError(tr("{option}: not allowed with --openai", option=triton[0]))
        _serve_openai(folder, prefix or [], port, address, queue)
        return None
    if prefix:
        raise UsageError(tr("--prefix: needs --openai; `course ft export --prefix` puts prefixes into FOLDER"))
    from course_lib.serving import repository, server

    if target:
        written = repository.write(folder, target, backend, weights, instances, queue)
        message = tr_noop("Triton model {name!r} for backend {backend} → {folder}")
        return tr(message, name=written.name, backend=backend, folder=written)
    if backend != "python" or weights:
        raise UsageError("--backend, --weights: need -o OUT; without -o, FOLDER itself is served")
    server.serve(server.running(folder, port, address, timeout, threads, instances, queue))
    return None


def _serve_openai(folder: Path, prefixes: list[Path], port: int, address: str, queue: int) -> None:
    """Serve OpenAI's protocol. Raises CourseError if the packages for it are not installed."""
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise CourseError(tr("{name}: not installed; pip install 'japanese-lm-course[serve]'", name=package))
    from course_lib.serving import openai_server

    aozora.tell(folder)
    openai_server.serve(folder, prefixes, port, address, queue)


def ask(
    prompts: Prompts,
    *,
    folder: Annotated[
        Path | None,
        Option("--folder", help="the served folder, for its tokenizer and the names of its tasks", parser=path),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        Option("--tokenizer", help="tokenizer folder; default: FOLDER/tokenizer", parser=path),
        Note.MODEL,
    ] = None,
    task: Annotated[str | None, Option("--task", help="name or number of the prefix to use; default: none")] = None,
    answer_only: Annotated[bool, Option("--answer-only", help="print what the model adds, without the prompt")] = False,
    url: Annotated[str, Option("--url", help="HOST:PORT of the server's HTTP")] = "127.0.0.1:8000",
    settings: Annotated[AskConfig, FromOptions()] = AskConfig(),  # noqa: B008
) -> list[Continued]:
    """Continue texts with a served model, with the prefix of a task or without."""
    task_number = _task(task, folder)
    from course_lib.pretrain import text_codec
    from course_lib.serving import client, layout

    if folder and not tokenizer:
        tokenizer = layout.find(folder)[0].resolve().parent / layout.TOKENIZER
    if not tokenizer:
        raise UsageError(tr("--tokenizer: needed, or --folder FOLDER"))
    if not tokenizer.is_dir():
        raise UsageError(tr("--tokenizer: {tokenizer}: no such folder", tokenizer=tokenizer))
    answers = client.ask(client.Client(url), text_codec.load(tokenizer), prompts, settings, task_number)
    if answer_only:
        answers = [[replace(text, prompt="") for text in texts] for texts in answers]
    return continued(prompts, answers)


def _task(task: str | None, folder: Path | None) -> int | None:
    """Return the index of a task given by name or index. Raises UsageError if the folder has no such task."""
    from course_lib.serving import ini, layout

    names = [found.name for found in ini.read(*layout.find(folder))[0].tasks] if task and folder else []
    if task in names:
        return names.index(task)
    if task is None or (task.isdecimal() and (not folder or int(task) < len(names))):
        return int(task) if task else None
    allowed = ", ".join(f"{name} ({number})" for number, name in enumerate(names))
    allowed = allowed or tr("a number, or a name with --folder FOLDER")
    raise UsageError(tr("--task {task}: no such task; allowed: {allowed}", task=task, allowed=allowed))


def demo(
    *,
    port: Annotated[int, Option("--port", min=1, max=65533, help="port on 127.0.0.1")] = 7860,
    chat: Annotated[
        str,
        Option("--chat", help="a published model to talk to: smollm2, or a folder or name of transformers"),
    ] = "",
) -> None:
    """Open a page to play with models: aozora and its writers side by side, and those of the profile. Ctrl-C ends it.

    The page is on 127.0.0.1 and loads nothing from the internet, but for a model that --chat names and, in an installed
    course, aozora's weights (50.7 MB, once). `make course` or `course run` builds the profile's models.
    """
    if not find_spec("gradio"):
        raise UsageError(tr("gradio is not installed; pip install 'japanese-lm-course[demo]'"))
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    if not chat or Path(chat).exists():
        os.environ["HF_HUB_OFFLINE"] = "1"
    from course_lib.serving import demo as page

    page.serve(port, chat, lambda url: print(tr("{url} (Ctrl-C ends it)", url=url), flush=True))

"""The table of `course` commands, in the order of the course. Listing them imports no chapter; cli.py runs them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from course_lib import __version__
from course_lib.errors import CourseError
from course_lib.language.words import tr, tr_noop


class _LazyFinder(MetaPathFinder):
    """Finds modules on the path as Python does, and gives them Python's loader that waits for the first use."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def _on_first_use() -> Iterator[None]:
    """Delay the imports in the block, of modules that are not imported yet, until an attribute of theirs is read."""
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


# The modules of the commands. To import them all takes 0.4 s, which no list of commands should wait for. `import torch`
# looks at an attribute of every module and so imports them, too: each must be importable everywhere, and fast.
with _on_first_use():
    from course_lib.command_line import (
        corpus,
        evaluate,
        gptsan,
        models,
        prefix,
        profile,
        runs,
        serving,
        train,
        workspace,
        world,
    )


def _authors() -> Any:
    """Return the module of the commands for authors, which is beside the docs: only a checkout has it."""
    from course_lib.paths import REPOSITORY

    docs = REPOSITORY / "docs"
    if not (docs / "course_authors").is_dir():
        raise CourseError(f"{docs}: not found; catalogues and notebooks are written in a checkout")
    if str(docs) not in sys.path:
        sys.path.append(str(docs))
    from course_authors import commands

    return commands


class Command(NamedTuple):
    """A command: its function, which is looked up when the command is called, and its line in lists of commands."""

    function: Callable[[], Callable[..., object]]
    help: str


# Commands by their words after `course`, by part of the course.
PARTS: dict[str, dict[str, Command]] = {
    tr_noop("Corpus"): {
        "corpus download": Command(lambda: corpus.download, "Download a dump and verify it, or resume"),
        "corpus wikipedia": Command(lambda: corpus.wikipedia, "Extract the articles of a dump"),
        "corpus webtext": Command(lambda: corpus.webtext, "Filter web text and remove duplicates"),
        "corpus aozora": Command(lambda: corpus.aozora, "Turn the works of Aozora Bunko into plain texts"),
    },
    tr_noop("A small world"): {
        "world write": Command(lambda: world.write, "Write documents whose facts and probability are known"),
        "world check": Command(lambda: world.check, "Check texts: sentences, facts, contradictions, copies"),
    },
    tr_noop("Words"): {
        "segment": Command(lambda: corpus.segment, "Normalize documents and segment them"),
        "segment-eval": Command(lambda: corpus.segment_eval, "Compare segmenters with text segmented by hand"),
    },
    tr_noop("Tokenizers"): {
        "tokenizer bpe": Command(lambda: corpus.bpe, "Train a BPE tokenizer as in the GPT-2 XL recipe"),
        "tokenizer unigram": Command(lambda: corpus.unigram, "Train a Unigram tokenizer with sentencepiece"),
    },
    tr_noop("Corpus work on a cluster"): {
        "scale run": Command(lambda: corpus.scale_run, "Run all stages, from dumps to tokens"),
        "scale status": Command(lambda: corpus.scale_status, "Show the stages of a run and the time left"),
        "scale plan": Command(lambda: corpus.scale_plan, "Estimate hours, memory and disk for 1 to 512 cores"),
    },
    tr_noop("Language models"): {
        "tokenize": Command(lambda: corpus.tokenize, "Tokenize a corpus into Megatron's indexed format"),
        "tokens": Command(lambda: corpus.tokens, "Count, merge or repair token files"),
        "memory": Command(lambda: runs.memory, "Plan the GPU memory of a training run"),
        "pretrain": Command(lambda: train.pretrain, "Pretrain a GPT-2 or GPT-NeoX"),
        "export": Command(lambda: runs.export, "Export what a run has trained: a model or a prefix"),
        "convert megatron": Command(lambda: models.convert_megatron, "Turn a Megatron-DeepSpeed GPT into a GPT-2"),
        "generate": Command(lambda: models.generate, "Continue raw Japanese texts with a model"),
        "evaluate": Command(lambda: evaluate.evaluate, "Compare models: bits per character, minimal pairs"),
        "push": Command(lambda: models.push, "Upload a model to the Hugging Face Hub"),
    },
    tr_noop("GPTSAN"): {
        "gptsan vocabulary": Command(lambda: gptsan.vocabulary, "Build a vocabulary from a corpus"),
        "gptsan encode": Command(lambda: gptsan.encode, "Encode texts as training examples"),
        "gptsan import-tf": Command(lambda: gptsan.import_tf, "Convert a TensorFlow checkpoint of the original"),
        "gptsan add-extra-stage": Command(lambda: gptsan.add_extra_stage, "Add new layers on top, to train them alone"),
        "gptsan train": Command(lambda: train.gptsan_train, "Train a GPTSAN, or those parts that are not frozen"),
        "gptsan generate": Command(lambda: gptsan.generate, "Continue texts, steered by the spout"),
    },
    tr_noop("Prefix tuning"): {
        "prefix train": Command(lambda: train.prefix_train, "Train a prefix of a frozen model"),
        "prefix generate": Command(lambda: prefix.generate, "Continue texts without and with prefixes"),
        "prefix convert": Command(lambda: prefix.convert, "Write a prefix in another form"),
    },
    tr_noop("Serving"): {
        "ft export": Command(lambda: serving.ft_export, "Export a model, with prefixes as its tasks"),
        "ft import": Command(lambda: serving.ft_import, "Turn a folder back into a Hugging Face model"),
        "ft inspect": Command(lambda: serving.ft_inspect, "Compare a folder with its config.ini"),
        "serve": Command(lambda: serving.serve, "Serve exported models with Triton"),
        "ask": Command(lambda: serving.ask, "Continue texts with a served model"),
        "demo": Command(lambda: serving.demo, "Open a page to play with the models"),
        "ct2 export": Command(lambda: serving.ct2_export, "Export a model to the format of CTranslate2"),
        "ct2 generate": Command(lambda: serving.ct2_generate, "Continue texts with CTranslate2"),
        "gguf export": Command(lambda: serving.gguf_export, "Export a model to a file for llama.cpp"),
    },
    tr_noop("The course itself"): {
        "run": Command(lambda: workspace.run, "Build the products of a chapter, or of all"),
        "status": Command(lambda: workspace.status, "List the products: fresh, stale or missing"),
        "clean": Command(lambda: workspace.clean, "Remove the products of a chapter, after a question"),
        "cache pack": Command(lambda: workspace.cache_pack, "Pack finished products into an archive"),
        "new": Command(lambda: profile.new, "Make a profile for your own texts"),
        "profile show": Command(lambda: profile.show, "Print what a profile sets and what it costs here"),
        "doctor": Command(lambda: workspace.doctor, "Show what this machine has, and what it lacks"),
    },
    tr_noop("For authors of the course"): {
        "notebooks": Command(lambda: _authors().notebooks, "Refresh, execute or translate the notebooks"),
        "words": Command(lambda: _authors().words, "Bring a language's catalogues in step"),
    },
}
COMMANDS = {words: command for part in PARTS.values() for words, command in part.items()}
GROUPS = {
    "world": tr_noop("Write and check texts of the small world"),
    "corpus": tr_noop("Turn raw dumps into clean documents, one JSON object a line"),
    "tokenizer": tr_noop("Train tokenizers that AutoTokenizer loads"),
    "scale": tr_noop("Corpus work on one machine, Slurm or Ray"),
    "convert": tr_noop("Turn checkpoints of other trainers into models"),
    "gptsan": tr_noop("GPTSAN: vocabulary, examples, extra stage, spout"),
    "prefix": tr_noop("Train, convert and use prefixes of a frozen model"),
    "ft": tr_noop("FasterTransformer weights: export, check, import"),
    "ct2": tr_noop("CTranslate2: run a GPT-2 or GPT-NeoX on CPUs"),
    "gguf": tr_noop("GGUF: run a model in llama.cpp"),
    "cache": tr_noop("Archives of finished products"),
    "profile": tr_noop("Profiles: the settings of everything that is built"),
}
NAMES = {"help_option_names": ["-h", "--help"]}


class _LazyCommand(TyperCommand):
    """A command from the table. It is made from its function when it is called."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name, help=tr(command.help))
        self.command = command

    def load(self) -> Any:
        """Import the function's module and return the command with its arguments and options."""
        from course_lib.command_line.command import command

        return command(str(self.name), self.command.function(), tr(self.command.help))

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Parse the command line with the loaded command."""
        return self.load().make_context(*arguments, **named)


class _Group(TyperGroup):
    """Commands in their order in the table; those of `course` itself by part of the course."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands for --help, one line each."""
        parts = {"Commands": self.commands} if ctx.parent else {
            part: dict.fromkeys(words.split()[0] for words in commands) for part, commands in PARTS.items()
        }  # fmt: skip
        width = max(map(len, self.commands))
        for part, names in parts.items():
            with formatter.section(tr(part)):
                formatter.write_dl([(name.ljust(width), str(self.commands[name].help)) for name in names])


def _course(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    """Print the version, if that is asked for."""
    if version:
        print(f"course {__version__}")
        raise typer.Exit


_root = typer.Typer(cls=_Group, context_settings=NAMES, rich_markup_mode=None)
_about = tr("From raw Japanese text to a served language model.")
_more = tr("COURSE_PROFILE selects the profile of the products (default tiny). `course COMMAND -h` has the details.")
_root.callback(invoke_without_command=True, no_args_is_help=True, help=f"{_about}\n\n{_more}")(_course)
app: Any = typer.main.get_command(_root)
for _words, _command in COMMANDS.items():
    *_parents, _name = _words.split()
    _parent: Any = app
    for _group in _parents:
        _options: Any = {"no_args_is_help": True, "rich_markup_mode": None, "context_settings": NAMES}
        _parent = app.commands.setdefault(_group, _Group(name=_group, help=tr(GROUPS[_group]), **_options))
    _parent.add_command(_LazyCommand(_name, _command))

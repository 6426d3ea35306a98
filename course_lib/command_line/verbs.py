"""The table of `course` commands, in the order of the road. Listing them imports no chapter; cli.py runs them."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from course_lib import __version__
from course_lib.command_line.lazily import on_first_use
from course_lib.language.words import mark, tr

# The modules of the verbs. To import them all takes 0.4 s, which no list of commands should wait for.
with on_first_use():
    from course_lib.command_line import (
        authors,
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


class Verb(NamedTuple):
    """A command: its function, which is looked up when the command is called, and its line in lists of commands."""

    function: Callable[[], Callable[..., object]]
    help: str


# Commands by their words after `course`, by part of the road.
ROAD: dict[str, dict[str, Verb]] = {
    mark("Corpus"): {
        "corpus download": Verb(lambda: corpus.download, "Download a dump and verify it, or resume"),
        "corpus wikipedia": Verb(lambda: corpus.wikipedia, "Extract the articles of a dump"),
        "corpus webtext": Verb(lambda: corpus.webtext, "Filter web text and remove duplicates"),
        "corpus quality": Verb(lambda: corpus.quality, "Train a classifier that scores documents"),
    },
    mark("A small world"): {
        "world write": Verb(lambda: world.write, "Write documents whose facts and probability are known"),
        "world check": Verb(lambda: world.check, "Check texts: sentences, facts, contradictions, copies"),
    },
    mark("Words"): {
        "segment": Verb(lambda: corpus.segment, "Normalize documents and segment them"),
        "segment-eval": Verb(lambda: corpus.segment_eval, "Compare segmenters with text segmented by hand"),
    },
    mark("Tokenizers"): {
        "tokenizer bpe": Verb(lambda: corpus.bpe, "Train a BPE tokenizer as in the GPT-2 XL recipe"),
        "tokenizer unigram": Verb(lambda: corpus.unigram, "Train a Unigram tokenizer with sentencepiece"),
    },
    mark("Corpus work on a cluster"): {
        "scale run": Verb(lambda: corpus.scale_run, "Run all stages, from dumps to tokens"),
        "scale status": Verb(lambda: corpus.scale_status, "Show the stages of a run and the time left"),
        "scale plan": Verb(lambda: corpus.scale_plan, "Estimate hours, memory and disk for 1 to 512 cores"),
    },
    mark("Language models"): {
        "tokenize": Verb(lambda: corpus.tokenize, "Tokenize a corpus into Megatron's indexed format"),
        "tokens": Verb(lambda: corpus.tokens, "Count, merge or repair token files"),
        "memory": Verb(lambda: runs.memory, "Plan the GPU memory of a training run"),
        "pretrain": Verb(lambda: train.pretrain, "Pretrain a GPT-2 or GPT-NeoX"),
        "export": Verb(lambda: runs.export, "Export what a run has trained: a model or a prefix"),
        "convert megatron": Verb(lambda: models.convert_megatron, "Turn a Megatron-DeepSpeed GPT into a GPT-2"),
        "generate": Verb(lambda: models.generate, "Continue raw Japanese texts with a model"),
        "evaluate": Verb(lambda: evaluate.evaluate, "Compare models: bits per character, minimal pairs"),
        "push": Verb(lambda: models.push, "Upload a model to the Hugging Face Hub"),
    },
    mark("GPTSAN"): {
        "gptsan vocabulary": Verb(lambda: gptsan.vocabulary, "Build a vocabulary from a corpus"),
        "gptsan encode": Verb(lambda: gptsan.encode, "Encode texts as training examples"),
        "gptsan import-tf": Verb(lambda: gptsan.import_tf, "Convert a TensorFlow checkpoint of the original"),
        "gptsan add-extra-stage": Verb(lambda: gptsan.add_extra_stage, "Add new layers on top, to train them alone"),
        "gptsan train": Verb(lambda: train.gptsan_train, "Train a GPTSAN, or those parts that are not frozen"),
        "gptsan generate": Verb(lambda: gptsan.generate, "Continue texts, steered by the spout"),
    },
    mark("Prefix tuning"): {
        "prefix train": Verb(lambda: train.prefix_train, "Train a prefix of a frozen model"),
        "prefix generate": Verb(lambda: prefix.generate, "Continue texts without and with prefixes"),
        "prefix convert": Verb(lambda: prefix.convert, "Write a prefix in another form"),
    },
    mark("Serving"): {
        "ft export": Verb(lambda: serving.ft_export, "Export a model, with prefixes as its tasks"),
        "ft import": Verb(lambda: serving.ft_import, "Turn a folder back into a Hugging Face model"),
        "ft inspect": Verb(lambda: serving.ft_inspect, "Compare a folder with its config.ini"),
        "serve": Verb(lambda: serving.serve, "Serve exported models with Triton"),
        "ask": Verb(lambda: serving.ask, "Continue texts with a served model"),
        "demo": Verb(lambda: serving.demo, "Open a page to play with the models"),
        "ct2 export": Verb(lambda: serving.ct2_export, "Export a model to the format of CTranslate2"),
        "ct2 generate": Verb(lambda: serving.ct2_generate, "Continue texts with CTranslate2"),
        "gguf export": Verb(lambda: serving.gguf_export, "Export a model to a file for llama.cpp"),
    },
    mark("The course itself"): {
        "run": Verb(lambda: workspace.run, "Build the products of a chapter, or of all"),
        "status": Verb(lambda: workspace.status, "List the products: fresh, stale or missing"),
        "clean": Verb(lambda: workspace.clean, "Remove the products of a chapter, after a question"),
        "cache pack": Verb(lambda: workspace.cache_pack, "Pack finished products into an archive"),
        "new": Verb(lambda: profile.new, "Make a profile for your own texts"),
        "profile show": Verb(lambda: profile.show, "Print what a profile sets and what it costs here"),
        "doctor": Verb(lambda: workspace.doctor, "Show what this machine has, and what it lacks"),
    },
    mark("For authors of the course"): {
        "notebooks": Verb(lambda: authors.notebooks, "Refresh, execute or translate the notebooks"),
        "words": Verb(lambda: authors.words, "Bring a language's catalogues in step"),
    },
}
VERBS = {words: verb for part in ROAD.values() for words, verb in part.items()}
GROUPS = {
    "world": mark("Write and check texts of the small world"),
    "corpus": mark("Turn raw dumps into clean documents, one JSON object a line"),
    "tokenizer": mark("Train tokenizers that AutoTokenizer loads"),
    "scale": mark("Corpus work on one machine, Slurm or Ray"),
    "convert": mark("Turn checkpoints of other trainers into models"),
    "gptsan": mark("GPTSAN: vocabulary, examples, extra stage, spout"),
    "prefix": mark("Train, convert and use prefixes of a frozen model"),
    "ft": mark("FasterTransformer weights: export, check, import"),
    "ct2": mark("CTranslate2: run a GPT-2 or GPT-NeoX on CPUs"),
    "gguf": mark("GGUF: run a model in llama.cpp"),
    "cache": mark("Archives of finished products"),
    "profile": mark("Profiles: the settings of everything that is built"),
}
NAMES = {"help_option_names": ["-h", "--help"]}


class _Command(TyperCommand):
    """A command from the table. It is made from its function when it is called."""

    def __init__(self, name: str, verb: Verb) -> None:
        super().__init__(name, help=tr(verb.help))
        self.verb = verb

    def load(self) -> Any:
        """Import the function's module and return the command with its arguments and options."""
        from course_lib.command_line.command import command

        return command(str(self.name), self.verb.function(), tr(self.verb.help))

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Parse the command line with the loaded command."""
        return self.load().make_context(*arguments, **named)


class _Group(TyperGroup):
    """Commands in their order in the table; those of `course` itself by part of the road."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands for --help, one line each."""
        parts = {"Commands": self.commands} if ctx.parent else {
            part: dict.fromkeys(words.split()[0] for words in verbs) for part, verbs in ROAD.items()
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
for _words, _verb in VERBS.items():
    *_parents, _name = _words.split()
    _parent: Any = app
    for _group in _parents:
        _options: Any = {"no_args_is_help": True, "rich_markup_mode": None, "context_settings": NAMES}
        _parent = app.commands.setdefault(_group, _Group(name=_group, help=tr(GROUPS[_group]), **_options))
    _parent.add_command(_Command(_name, _verb))

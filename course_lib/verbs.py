"""The table of the verbs of the `course` command. Showing it imports no chapter; cli.py runs a verb.

Each verb calls the library function that the notebooks use, too.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# Words of the command → help text, module:function, and the settings class of that module that --help lists.
# The help text is the first paragraph of the function's docstring. Words without a function are a group of verbs.
# fmt: off
VERBS: dict[str, tuple[str, ...]] = {
    "segment": (
        "Normalize documents, split them into sentences and segment the sentences into words, one sentence per line.",
        "japanese.cli:segment", "SegmentConfig",
    ),
    "tokenize": ("Tokenize a corpus into files of token ids in Megatron's indexed format.", "pretrain.cli:tokenize"),
    "tokens": (
        "Count the sequences, documents and tokens of token files; merge the files; correct an index.",
        "pretrain.cli:tokens",
    ),
    "pretrain": (
        "Pretrain a GPT-2 or GPT-NeoX with DeepSpeed, on the GPUs or CPU of one or more nodes, and export the model.",
        "pretrain.cli:pretrain", "PretrainConfig",
    ),
    "export": (
        "Export the model of a run as a Hugging Face folder, with its tokenizer and a model card.",
        "pretrain.cli:export",
    ),
    "generate": (
        "Continue a raw Japanese text with a model; normalization, segmentation and its inverse are automatic.",
        "pretrain.cli:generate", "GenerateConfig",
    ),
    "push": (
        "Upload a model folder to the Hugging Face Hub. The token comes from HF_TOKEN or `hf auth login`.",
        "pretrain.cli:push",
    ),
    "serve": (
        "Serve an exported folder with Triton on this machine (HTTP and gRPC) until Ctrl-C.",
        "serving.serve_cli:serve",
    ),
    "ask": (
        "Continue texts with a served model, with the prefix of a task or without.",
        "serving.serve_cli:ask", "AskConfig",
    ),
    "memory": (
        "Plan the GPU memory of a run for every ZeRO stage and recompute choice, and list the cards that it fits.",
        "memory_cli:memory",
    ),
    "run": (
        "Run the notebooks of a chapter into the workspace and build what they need. Fresh products are not rebuilt.",
        "workspace_cli:run",
    ),
    "status": (
        "List the workspace's products: fresh, stale (with the reason) or missing, with size, age and counts.",
        "workspace_cli:status",
    ),
    "clean": (
        "Remove the products of a chapter, or of all chapters, from the current profile's workspace.",
        "workspace_cli:clean",
    ),
    "doctor": (
        "Show which parts this machine has, what fails without each missing one, and how to get it.",
        "workspace_cli:doctor",
    ),
    "notebooks": (
        "For authors: update each notebook's badge and set-up cell from pyproject.toml, tidy it, export figures.",
        "workspace_cli:notebooks",
    ),
    "corpus": ("Turn raw dumps into clean documents, one JSON object per line.",),
    "corpus download": (
        "Download a dump and verify it; an interrupted download is resumed.",
        "corpus.cli:download", "DownloadConfig",
    ),
    "corpus wikipedia": (
        "Extract the articles of a Wikipedia dump as plain text.",
        "corpus.cli:wikipedia", "WikipediaConfig",
    ),
    "corpus webtext": ("Filter web text and remove duplicates.", "corpus.cli:webtext", "WebtextConfig"),
    "tokenizer": ("Train tokenizers. Each is written as a folder that AutoTokenizer loads.",),
    "tokenizer bpe": (
        "Train a BPE tokenizer as in the GPT-2 XL recipe (library: tokenizers).",
        "subword.cli:bpe", "BpeConfig",
    ),
    "tokenizer unigram": (
        "Train a Unigram or BPE tokenizer with sentencepiece.",
        "subword.cli:unigram", "UnigramConfig",
    ),
    "convert": ("Turn checkpoints of other trainers into Hugging Face folders.",),
    "convert megatron": (
        "Turn a Megatron-DeepSpeed GPT checkpoint into a Hugging Face GPT-2.",
        "pretrain.cli:convert_megatron",
    ),
    "gptsan": ("GPTSAN: vocabulary, examples, extra stage, training through the spout, generation.",),
    "gptsan vocabulary": (
        "Build a vocabulary in the published format (vocab.txt, emoji.json) from a corpus.",
        "gptsan.cli:vocabulary", "VocabularyConfig",
    ),
    "gptsan encode": (
        "Encode texts as training examples: TFRecord files for the original's tools, arrays for `course gptsan train`.",
        "gptsan.cli:encode", "EncodeConfig",
    ),
    "gptsan import-tf": (
        "Convert a TensorFlow checkpoint of the original GPTSAN to a Hugging Face folder.",
        "gptsan.cli:import_tf",
    ),
    "gptsan add-extra-stage": (
        "Add layers to a GPTSAN; write the list of frozen parameters and the settings that train the others.",
        "gptsan.cli:add_extra_stage",
    ),
    "gptsan train": (
        "Train a new GPTSAN, or the parameters of one that are not frozen, with DeepSpeed; then export the model.",
        "gptsan.cli:train", "GptsanConfig",
    ),
    "gptsan export": (
        "Write the model of a run's latest complete checkpoint as a Hugging Face folder.",
        "gptsan.cli:export",
    ),
    "gptsan generate": ("Generate texts with a GPTSAN, steered by its spout.", "gptsan.cli:generate", "GenerateConfig"),
    "gptsan fill": (
        "Fill the masks of a text; the model must be trained on mlm or hybrid examples.",
        "gptsan.cli:fill", "FillConfig",
    ),
    "prefix": ("Prefix tuning: train, export, convert and count prefixes of a frozen model, and generate.",),
    "prefix train": (
        "Train a prefix of a frozen model with DeepSpeed, and write it into the run's folder.",
        "prefix.cli:train", "PrefixConfig",
    ),
    "prefix export": ("Write the prefix of a run's latest complete checkpoint.", "prefix.cli:export"),
    "prefix generate": (
        "Continue texts with a model, without a prefix and with each given prefix, side by side.",
        "prefix.cli:generate", "GenerateConfig",
    ),
    "prefix convert": (
        "Write a prefix in another form. The numbers stay the same; their names change.",
        "prefix.cli:convert",
    ),
    "prefix report": (
        "Count the parameters of a prefix: trained, deployed, and as shares of the base's parameters.",
        "prefix.cli:report",
    ),
    "ft": ("FasterTransformer weights: export them and check them.",),
    "ft export": (
        "Export a model, with prefixes as its tasks, to a FasterTransformer folder.",
        "serving.ft_cli:export",
    ),
    "ft inspect": (
        "Compare a FasterTransformer folder with its config.ini, file by file; exit code 1 if anything is wrong.",
        "serving.ft_cli:inspect",
    ),
    "ct2": ("CTranslate2: run a GPT-2 or GPT-NeoX on CPUs, without prefixes.",),
    "ct2 export": ("Export a model, with its tokenizer, to the format of CTranslate2.", "serving.ct2_cli:export"),
    "ct2 generate": ("Continue texts with CTranslate2.", "serving.ct2_cli:generate", "GenerateConfig"),
}
# fmt: on


class _Verb(TyperCommand):
    """A line of the table. The module of the verb is imported when the verb is called."""

    def __init__(self, name: str, help: str, function: str, settings: str = "") -> None:
        super().__init__(name, help=help)
        self.function, self.settings = function, settings

    def load(self) -> Any:
        """The command with its options and arguments."""
        module, _, function = self.function.partition(":")
        code = import_module(f"course_lib.{module}")
        from course_lib import options

        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        epilog = options.epilog(getattr(code, self.settings)) if self.settings else None
        app.command(self.name, epilog=epilog)(getattr(code, function))
        return typer.main.get_command(app)

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Parses the command line of the verb, with the loaded command."""
        return self.load().make_context(*arguments, **named)


def _group(name: str, help: str) -> TyperGroup:
    return TyperGroup(name=name, help=help, no_args_is_help=True, rich_markup_mode=None)


app = _group(
    "course",
    "From raw Japanese text to a served language model. COURSE_PROFILE selects the products' profile (default tiny).",
)
for _words, _row in VERBS.items():
    *_parents, _name = _words.split()
    _parent: Any = app.commands[_parents[0]] if _parents else app
    _parent.add_command(_Verb(_name, *_row) if len(_row) > 1 else _group(_name, *_row))

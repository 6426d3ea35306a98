"""The table of `course` commands. Listing them imports no chapter; cli.py runs them.

Each command calls the same library function as the notebooks.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# command words → module:function, the settings class in that module that --help lists, and the help text, which is the
# first paragraph of the function's docstring. An entry without a function is a command group.
# fmt: off
VERBS: dict[str, tuple[str, str, str]] = {
    "segment": ("japanese.cli:segment", "SegmentConfig",
      "Normalize documents, split them into sentences and segment the sentences into words, one sentence per line."),
    "segment-eval": ("japanese.cli:segment_eval", "",
      "Compare segmenters with text segmented by hand: precision, recall and F1 over words, and speed."),
    "tokenize": ("pretrain.cli:tokenize", "",
      "Tokenize a corpus into files of token ids in Megatron's indexed format."),
    "tokens": ("pretrain.cli:tokens", "",
      "Count the sequences, documents and tokens of token files; merge the files; correct an index."),
    "pretrain": ("pretrain.cli:pretrain", "PretrainConfig",
      "Pretrain a GPT-2 or GPT-NeoX with DeepSpeed, on the GPUs or CPU of one or more nodes, and export the model."),
    "export": ("pretrain.cli:export", "",
      "Export the model of a run as a Hugging Face folder, with its tokenizer and a model card."),
    "generate": ("pretrain.cli:generate", "GenerateConfig",
      "Continue a raw Japanese text with a model; normalization, segmentation and its inverse are automatic."),
    "evaluate": ("command_line.evaluate:evaluate", "WindowSettings",
      "Measure models side by side: bits per character of raw text, and accuracy on Japanese minimal pairs."),
    "push": ("pretrain.cli:push", "",
      "Upload a model folder to the Hugging Face Hub. The token comes from HF_TOKEN or `hf auth login`."),
    "serve": ("serving.serve_cli:serve", "",
      "Serve exported folders with Triton on this machine (HTTP and gRPC) until Ctrl-C."),
    "ask": ("serving.serve_cli:ask", "AskConfig",
      "Continue texts with a served model, with the prefix of a task or without."),
    "memory": ("command_line.memory:memory", "",
      "Plan the GPU memory of a run for every ZeRO stage and recompute choice, and list the cards that it fits."),
    "run": ("command_line.workspace:run", "",
      "Run the notebooks of a chapter into the workspace and build what they need. Fresh products are not rebuilt."),
    "status": ("command_line.workspace:status", "",
      "List the workspace's products: fresh, stale (with the reason) or missing, with size, age and counts."),
    "clean": ("command_line.workspace:clean", "",
      "Remove the products of a chapter, or of all chapters, from the current profile's workspace."),
    "cache": ("", "",
      "Archives of finished products, for a learner who is behind."),
    "cache pack": ("command_line.workspace:cache_pack", "",
      "Pack the finished products of the current profile into an archive for `course run N --from-cache FILE`."),
    "doctor": ("command_line.workspace:doctor", "",
      "Show which parts this machine has, what fails without each missing one, and how to get it."),
    "notebooks": ("command_line.authors:notebooks", "",
      "For authors: update each notebook's badge and set-up cell from pyproject.toml, tidy it, export figures."),
    "words": ("command_line.authors:words", "",
      "For authors: bring a language's catalogues in step with the English texts."),
    "new": ("command_line.profile:new", "",
      "Create a profile for your own texts, so that the course runs on them."),
    "profile": ("", "",
      "Profiles: the settings for everything that the notebooks and `course run` build."),
    "profile show": ("command_line.profile:show", "",
      "Print what a profile sets, what it downloads, and the estimated hours and disk space on this machine."),
    "corpus": ("", "",
      "Turn raw dumps into clean documents, one JSON object per line."),
    "corpus download": ("corpus.cli:download", "DownloadConfig",
      "Download a dump and verify it; an interrupted download is resumed."),
    "corpus wikipedia": ("corpus.cli:wikipedia", "WikipediaConfig",
      "Extract the articles of a Wikipedia dump as plain text."),
    "corpus webtext": ("corpus.cli:webtext", "WebtextConfig",
      "Filter web text and remove duplicates."),
    "tokenizer": ("", "",
      "Train tokenizers. Each is written as a folder that AutoTokenizer loads."),
    "tokenizer bpe": ("subword.cli:bpe", "BpeConfig",
      "Train a BPE tokenizer as in the GPT-2 XL recipe (library: tokenizers)."),
    "tokenizer unigram": ("subword.cli:unigram", "UnigramConfig",
      "Train a Unigram or BPE tokenizer with sentencepiece."),
    "scale": ("", "",
      "Corpus work on one machine or a cluster (Slurm, Ray), from dumps to tokens."),
    "scale run": ("scale.cli:run", "ScaleConfig",
      "Turn dumps and web text into clean documents, a tokenizer and tokens, on one machine or a cluster."),
    "scale status": ("scale.cli:status", "",
      "Show the stages of a run: tasks, rates, failures with their reasons, and the time left."),
    "scale plan": ("scale.cli:plan", "ScaleConfig",
      "Estimate hours, memory and disk space of a run for 1 to 512 cores, from rates measured on one machine."),
    "convert": ("", "",
      "Turn checkpoints of other trainers into Hugging Face folders."),
    "convert megatron": ("pretrain.cli:convert_megatron", "",
      "Turn a Megatron-DeepSpeed GPT checkpoint into a Hugging Face GPT-2."),
    "gptsan": ("", "",
      "GPTSAN: vocabulary, examples, extra stage, training through the spout, generation."),
    "gptsan vocabulary": ("gptsan.cli:vocabulary", "VocabularyConfig",
      "Build a vocabulary in the published format (vocab.txt, emoji.json) from a corpus."),
    "gptsan encode": ("gptsan.cli:encode", "EncodeConfig",
      "Encode texts as training examples: TFRecord files for the original's tools, arrays for `course gptsan train`."),
    "gptsan import-tf": ("gptsan.cli:import_tf", "",
      "Convert a TensorFlow checkpoint of the original GPTSAN to a Hugging Face folder."),
    "gptsan add-extra-stage": ("gptsan.cli:add_extra_stage", "",
      "Add layers to a GPTSAN; write the list of frozen parameters and the settings that train the others."),
    "gptsan train": ("gptsan.cli:train", "GptsanConfig",
      "Train a new GPTSAN, or the parameters of one that are not frozen, with DeepSpeed; then export the model."),
    "gptsan export": ("gptsan.cli:export", "",
      "Write the model of a run's latest complete checkpoint as a Hugging Face folder."),
    "gptsan generate": ("gptsan.cli:generate", "GenerateConfig",
      "Generate texts with a GPTSAN, steered by its spout."),
    "gptsan fill": ("gptsan.cli:fill", "FillConfig",
      "Fill the masks of a text; the model must be trained on mlm or hybrid examples."),
    "prefix": ("", "",
      "Prefix tuning: train, export, convert and count prefixes of a frozen model, and generate."),
    "prefix train": ("prefix.cli:train", "PrefixConfig",
      "Train a prefix of a frozen model with DeepSpeed, and write it into the run's folder."),
    "prefix export": ("prefix.cli:export", "",
      "Write the prefix of a run's latest complete checkpoint."),
    "prefix generate": ("prefix.cli:generate", "GenerateConfig",
      "Continue texts with a model, without a prefix and with each given prefix, side by side."),
    "prefix convert": ("prefix.cli:convert", "",
      "Write a prefix in another form. The numbers stay the same; their names change."),
    "prefix report": ("prefix.cli:report", "",
      "Count the parameters of a prefix: trained, deployed, and as shares of the base's parameters."),
    "ft": ("", "",
      "FasterTransformer weights: export them, check them, and import them again."),
    "ft export": ("serving.ft_cli:export", "",
      "Export a model, with prefixes as its tasks, to a FasterTransformer folder."),
    "ft import": ("serving.ft_cli:import_", "",
      "Turn a FasterTransformer folder back into a Hugging Face folder, bit for bit, with its prefixes as files."),
    "ft inspect": ("serving.ft_cli:inspect", "",
      "Compare a FasterTransformer folder with its config.ini, file by file; exit code 1 if anything is wrong."),
    "ct2": ("", "",
      "CTranslate2: run a GPT-2 or GPT-NeoX on CPUs, without prefixes."),
    "ct2 export": ("serving.ct2_cli:export", "",
      "Export a model, with its tokenizer, to the format of CTranslate2."),
    "ct2 generate": ("serving.ct2_cli:generate", "GenerateConfig",
      "Continue texts with CTranslate2."),
}
# fmt: on


class _Verb(TyperCommand):
    """A command from the table. Its module is imported when the command is called."""

    def __init__(self, name: str, function: str, settings: str, help: str) -> None:
        super().__init__(name, help=help)
        self.function, self.settings = function, settings

    def load(self) -> Any:
        """Import the module and return the command with its options and arguments."""
        module, _, function = self.function.partition(":")
        code = import_module(f"course_lib.{module}")
        from course_lib.command_line import options

        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        epilog = options.epilog(getattr(code, self.settings)) if self.settings else None
        app.command(self.name, epilog=epilog)(getattr(code, function))
        return typer.main.get_command(app)

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Parse the command line with the loaded command."""
        return self.load().make_context(*arguments, **named)


def _group(name: str, help: str) -> TyperGroup:
    return TyperGroup(name=name, help=help, no_args_is_help=True, rich_markup_mode=None)


app = _group(
    "course",
    "From raw Japanese text to a served language model. COURSE_PROFILE selects the products' profile (default tiny).",
)
for _words, (_function, _settings, _help) in VERBS.items():
    *_parents, _name = _words.split()
    _parent: Any = app.commands[_parents[0]] if _parents else app
    _parent.add_command(_Verb(_name, _function, _settings, _help) if _function else _group(_name, _help))

"""A profile's run on plain text: prepared, trained for some minutes on one GPU, and judged; only figures are kept.

    COURSE_PROFILE=single-gpu python -m tests.bench.gpu_recipe -o DIR --text novels.txt.xz --stop prepared
    COURSE_PROFILE=single-gpu python -m tests.bench.gpu_recipe -o DIR --minutes 20 --speed 400000 --until 560

DIR holds every stage's product, so another call goes on where the last one ended; --until ends a call after that many
seconds at the latest. The first line prepares on any machine: documents with a fiftieth of the characters are held out;
segmenter, tokenizer and run are those of the profile. The run takes as many steps as fit into the minutes at that speed
[tokens/s, from gpu_all's table], but no more than --epochs passes over the text, as text seen more often teaches little
(Muennighoff et al. 2023, https://arxiv.org/abs/2305.16264). The results are in DIR/results: curve.png, log.jsonl and
recipe.json with bits per character, minimal pairs and samples, beside a character trigram model of the same text.

Exit code: 0 when the results are there, 3 if another call is needed.
"""

import argparse
import json
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from course_lib.command_line.evaluate import GRAMMAR, TRIGRAM, open_model, read_pairs, trigram_model
from course_lib.documents import read_texts
from course_lib.evaluation import report
from course_lib.evaluation.windows import WindowSettings
from course_lib.files import atomic_folder, atomic_write
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.japanese.config import SEGMENT_SECTION
from course_lib.japanese.pipeline import segment_file
from course_lib.parallel import default_workers
from course_lib.pretrain import text_codec
from course_lib.pretrain.config import RECIPE_SECTION, PretrainConfig
from course_lib.pretrain.encode import tokenize
from course_lib.pretrain.export import export
from course_lib.pretrain.figures import loss_curve
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.pretrain.indexed import IndexedDataset
from course_lib.settings import config, profiles
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import BPE_SECTION
from course_lib.training import checkpoint, log
from course_lib.training.loop import train

from tests.bench.gpu_common import Enough

HELD_OUT = 0.02  # of the characters
JUDGED = 500_000  # held-out characters at most
SAVE = 60  # time between checkpoints [s]
PROMPTS = ("日本の", "昔々、あるところに", "春になると、山の")
LEFT = 3  # exit code


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--text", type=Path, action="append", metavar="FILE", help=".txt or .jsonl, also compressed")
    parser.add_argument("--vocabulary", type=int, metavar="ENTRIES", help="of the tokenizer; default: the profile's")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--speed", type=float, default=300_000)
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the run")
    parser.add_argument("--until", type=float, default=1e9, metavar="SECONDS", help="from now")
    parser.add_argument("--stop", choices=["prepared"])
    options = parser.parse_args(arguments)
    end, folder = monotonic() + options.until, options.output.absolute()
    prepared = folder / "prepared"
    if not prepared.exists():
        if not options.text:
            parser.error(f"--text: not given, and {prepared} does not exist")
        prepare(options.text, prepared, options.vocabulary)
    if options.stop == "prepared":
        return 0
    settings = recipe(prepared, folder / "run", options.minutes, options.speed, options.epochs, options.set)
    if not trained(settings, end):
        return LEFT
    if not (folder / "results").exists():
        if monotonic() > end - SAVE:
            return LEFT
        judge(settings, prepared, folder)
    print((folder / "results" / "recipe.json").read_text(encoding="utf8"))
    return 0


def prepare(texts: Sequence[Path], target: Path, vocabulary: int | None) -> None:
    """Documents, those held out, segmented lines, the tokenizer and the tokens, in the profile's settings."""
    documents = [text for path in texts for text in read_texts(path) if text.strip()]
    random.Random(0).shuffle(documents)
    held_out, training, characters_left = list[str](), list[str](), HELD_OUT * sum(map(len, documents))
    for text in documents:
        (held_out if len(text) <= characters_left else training).append(text)
        characters_left -= len(text) if len(text) <= characters_left else 0
    with atomic_folder(target) as folder:
        for name, part in (("held_out", held_out), ("documents", training)):
            written = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in part)
            (folder / f"{name}.jsonl").write_text("".join(written), encoding="utf8")
        lines, words = folder / "lines.txt", folder / "tokenizer"
        workers = default_workers()
        segment_file(folder / "documents.jsonl", lines, SEGMENT_SECTION.read(), workers)
        size = [f"vocab_size={vocabulary}"] if vocabulary else []
        train_bpe([lines], words, BPE_SECTION.read(size), show_progress=False)
        found = tokenize([lines], words, folder / "tokens", workers, append_eod=True)
        lines.unlink()
        about: dict[str, Any] = {"profile": profiles.current_name(), "texts": [path.name for path in texts]}
        for name, part in (("", documents), ("held_out_", held_out)):
            about |= {f"{name}documents": len(part), f"{name}characters": sum(map(len, part))}
        about["tokens"] = found.tokens
        (folder / "about.json").write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf8")


def recipe(
    prepared: Path, run: Path, minutes: float, speed: float, epochs: float, changes: Sequence[str]
) -> PretrainConfig:
    """The profile's run on the prepared text, with as many steps as the minutes and the epochs allow."""
    file = RECIPE_SECTION.read().config
    overrides = [f"data.input=[{prepared}/tokens]", f"data.tokenizer={prepared}/tokenizer", f"engine.output_dir={run}"]
    overrides += ["engine.tracking=[]", "launch.ranks=1", *changes]
    first = config.load(PretrainConfig, file, overrides)
    each = first.batch.resolve(1).total * first.data.seq_length
    tokens = int(IndexedDataset(prepared / "tokens").sizes.sum())
    steps = max(1, int(min(60 * minutes * speed, epochs * tokens) / each))
    save = max(1, int(SAVE * speed / each))
    length = [f"engine.max_steps={steps}", "engine.num_train_epochs=null", "data.train_tokens=null"]
    rhythm = [f"engine.save_steps={save}", f"engine.eval_freq={max(1, steps // 20)}", "engine.logging_freq=1"]
    return config.load(PretrainConfig, file, [*overrides, *length, *rhythm])


def trained(settings: PretrainConfig, end: float) -> bool:
    """Trains on until `end` at the latest, and says whether the last step is done.

    In the last minute, a run is ended one step after its next checkpoint, so that only that step is trained twice.
    """
    run = settings.engine.output_dir
    newest: Callable[[], list[Path]] = lambda: checkpoint.whole_checkpoints(run)[:1]
    steps, before = settings.engine.max_steps, newest()
    if before and checkpoint.step_of(before[0]) == steps:
        return True
    saved = before

    def say(line: str) -> None:
        nonlocal saved
        print(line, flush=True)
        latest, now = newest(), monotonic()
        if now > end or (now > end - 1.5 * SAVE and latest != saved):
            raise Enough
        saved = latest

    if monotonic() > end - 2 * SAVE:
        return False
    with suppress(Enough):
        train(Gpt2(settings), resume=bool(before), on_message=say)
        return True
    return False


def judge(settings: PretrainConfig, prepared: Path, folder: Path) -> None:
    """The figures of the trained model: curve, bits per character, minimal pairs, samples."""
    run, model = settings.engine.output_dir, folder / "model"
    export(run, model)
    held_out, entries, characters = folder / "judged.jsonl", log.read(run), 0
    with open(held_out, "w", encoding="utf8") as file:
        for text in read_texts(prepared / "held_out.jsonl"):
            if characters < JUDGED:
                file.write(json.dumps({"text": text[: JUDGED - characters]}, ensure_ascii=False) + "\n")
            characters += len(text)
    inputs = report.Inputs.read([held_out], read_pairs(GRAMMAR), WindowSettings(batch_size=16))
    results = [report.evaluate("GPT-2", open_model(model), inputs)]
    results.append(report.evaluate(TRIGRAM, trigram_model([prepared / "documents.jsonl"]), inputs))
    sampling = GenerateConfig(max_new_tokens=100, num_return_sequences=2, seed=0)
    written = Generator(model, text_codec.load).generate(PROMPTS, sampling)
    facts: dict[str, Any] = json.loads((prepared / "about.json").read_text(encoding="utf8"))
    last = [entry for entry in entries if entry["kind"] == "train"][-1]
    evaluated = [entry for entry in entries if entry["kind"] == "eval"]
    changed = config.changed(settings)
    for key in ("data.input", "data.tokenizer", "engine.output_dir"):
        changed.pop(key, None)
    facts |= {
        "settings": changed,
        "parameters": settings.sizes().parameters,
        "steps": last["step"],
        "epochs": last["epoch"],
        "tokens_per_second": last["tokens_per_second"],
        "held_out_loss": {str(entry["step"]): entry["loss"] for entry in evaluated},
        "scores": report.to_dict(inputs, results)["models"],
        "samples": {prompt: [one.text for one in texts] for prompt, texts in zip(PROMPTS, written)},
    }
    with atomic_folder(folder / "results") as target:
        loss_curve(entries, settings.model.vocab_size).savefig(target / "curve.png", dpi=120, bbox_inches="tight")
        shutil.copyfile(run / log.FILE, target / log.FILE)
        with atomic_write(target / "recipe.json") as output:
            output.write(json.dumps(facts, ensure_ascii=False, indent=1).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())

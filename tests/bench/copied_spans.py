"""How long the passages are that `aozora` copies, by temperature, for the table and the figure of notebook 4a.

    course corpus aozora …                                            # about three minutes; writes both files
    python -m tests.bench.copied_spans held-out.jsonl train.jsonl

writes course_lib/pretrain/copied_spans.csv: for each temperature, and for the authors held out, the longest passage of
48 texts that stands in the training text; the share of the windows of four tokens that stood before in the same text;
and the bits that the model needs for a token. The last two are of the first 64 tokens of a text. About ten minutes on
a core.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from course_lib.checkpoints import aozora
from course_lib.documents import read_texts
from course_lib.evaluation import copies
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.copies import CopySettings
from course_lib.evaluation.windows import score
from course_lib.generation.generator import Generator
from course_lib.japanese import normalize
from course_lib.notebooks import measured
from course_lib.pretrain import text_codec

TEMPERATURES = (0.2, 0.4, 0.7, 1.0, 1.3)
AUTHORS = "other authors"
# Windows of fewer characters stand in any text by chance, and there are millions of them.
LENGTHS = (12, 20)
TOKENS, WINDOW = 64, 4


def repetition_and_bits(model: FolderScorer, texts: Sequence[str]) -> tuple[float, float]:
    """Return the share of repeated windows, and the bits per token of the first tokens of texts."""
    sequences = [model.tokens(text, end=False) for text in texts]
    sequences = [replace(each, read=each.read[:TOKENS], target=each.target[:TOKENS]) for each in sequences]
    shares = []
    for each in sequences:
        windows = [tuple(each.target[at : at + WINDOW]) for at in range(len(each.target) - WINDOW + 1)]
        shares += [1 - len(set(windows)) / len(windows)] if windows else []
    nats = sum(scores.total for scores in score(model, sequences))
    tokens = sum(len(each.target) for each in sequences)
    return sum(shares) / len(shares), -nats / math.log(2) / tokens


def main() -> None:
    held_out, training = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    model, settings = FolderScorer(Generator(aozora.folder(), text_codec.load)), CopySettings()
    prompts = copies.prompts(read_texts(held_out), settings)
    written = {}
    for temperature in TEMPERATURES:
        one = replace(settings, temperature=temperature)
        written[f"temperature {temperature}", ""] = copies.samples(model, prompts, one, 1.0)
        print(temperature, flush=True)
    texts = copies.beside_held_out(written, prompts)
    found = copies.copies(texts, read_texts(training), normalize, LENGTHS)
    rows = []
    for (name, setting), group in texts.items():
        known = found[name, setting]
        whole = [prompt + text for (prompt, _), text in zip(prompts, group, strict=True)]
        repeated, bits = repetition_and_bits(model, whole)
        rows.append(
            {
                "who": AUTHORS if name == copies.HELD_OUT else name,
                "texts": known.texts,
                "characters": known.characters,
                "longest": len(known.longest),
                "span": known.longest,
                "copied_20": known.copied[20],
                "repeated": round(repeated, 4),
                "bits": round(bits, 3),
            }
        )
        print(rows[-1], flush=True)
    measured.write("pretrain/copied_spans", rows)


if __name__ == "__main__":
    main()

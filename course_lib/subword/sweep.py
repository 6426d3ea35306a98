"""Effect of the vocabulary size: tokenizers trained on 90% of the texts in several sizes, measured on the last 10%."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from course_lib.japanese import normalize, segment, split_sentences
from course_lib.subword import folder
from course_lib.subword.bpe import train_bpe
from course_lib.subword.compare import compare
from course_lib.subword.config import BpeConfig, UnigramConfig
from course_lib.subword.unigram import train_unigram


def characters_per_token(texts: Sequence[str], sizes: Sequence[int]) -> dict[str, dict[int, float]]:
    """Return {algorithm: {vocabulary size: characters per token on held-out text}}.

    The last tenth of the texts is held out. The algorithms are BPE on segmented text, BPE on raw text and Unigram on
    raw text. Raises CourseError if the texts support fewer entries than a size asks for.
    """
    at = len(texts) * 9 // 10
    held_out = [sentence for text in texts[at:] for sentence in split_sentences(normalize(text))]
    with TemporaryDirectory() as name:
        work_folder = Path(name)
        raw, segmented = work_folder / "raw.jsonl", work_folder / "segmented.txt"
        raw.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts[:at]))
        sentences = (sentence for text in texts[:at] for sentence in split_sentences(normalize(text)))
        segmented.write_text("".join(segment(sentence) + "\n" for sentence in sentences), encoding="utf8")

        def bpe(source: Path) -> Callable[[int], dict[str, int]]:
            return lambda size: train_bpe(
                [source], work_folder / "trained", BpeConfig(vocab_size=size, limit_alphabet=4000), False
            )

        def unigram(source: Path) -> Callable[[int], dict[str, int]]:
            return lambda size: train_unigram([source], work_folder / "trained", UnigramConfig(vocab_size=size))

        measured: dict[str, dict[int, float]] = {}
        for label, train in {
            "BPE, segmented": bpe(segmented),
            "BPE, raw": bpe(raw),
            "Unigram, raw": unigram(raw),
        }.items():
            measured[label] = {}
            for size in sizes:
                train(size)
                row = compare({label: folder.load(work_folder / "trained")}, held_out)[0]
                measured[label][size] = row.characters_per_token
    return measured

"""Effect of vocabulary size: tokenizers of several sizes, trained on 90% of the texts and measured on the last 10%."""

from collections.abc import Sequence
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
    raw text. Raises CourseError if the texts support fewer entries than the requested size.
    """
    at = len(texts) * 9 // 10
    held_out = [sentence for text in texts[at:] for sentence in split_sentences(normalize(text))]
    with TemporaryDirectory() as name:
        raw, segmented, trained = (Path(name, part) for part in ("raw.jsonl", "segmented.txt", "trained"))
        raw.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts[:at]))
        sentences = (sentence for text in texts[:at] for sentence in split_sentences(normalize(text)))
        segmented.write_text("".join(segment(sentence) + "\n" for sentence in sentences), encoding="utf8")
        sources = {"BPE, segmented": segmented, "BPE, raw": raw, "Unigram, raw": raw}
        measured: dict[str, dict[int, float]] = {label: {} for label in sources}
        for label, source in sources.items():
            for size in sizes:
                if label == "Unigram, raw":
                    train_unigram([source], trained, UnigramConfig(vocab_size=size))
                else:
                    train_bpe([source], trained, BpeConfig(vocab_size=size, limit_alphabet=4000), False)
                row = compare({label: folder.load(trained)}, held_out)[0]
                measured[label][size] = row.characters_per_token
    return measured

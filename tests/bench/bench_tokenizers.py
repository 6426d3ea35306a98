"""Tokenizer training against the bare library call, each in a process of its own: wall time and peak memory.

    python -m tests.bench.bench_tokenizers LINES.txt DOCUMENTS.jsonl

LINES.txt are segmented lines (`course segment`), DOCUMENTS.jsonl the documents they came from. Asked for: at most 1.05 × the wall time
and 1.2 × the memory; and segmented BPE an order faster than unsegmented.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BPE, UNIGRAM = 32_000, 16_000  # entries


def work(name: str, source: Path, target: Path) -> None:
    """One training in this process; the last line it prints is `seconds megabytes`.

    Imports count in the megabytes, so each side has its own only, and not in the seconds.
    """
    import time

    if name.startswith("bpe-ours"):
        from course_lib.subword.bpe import train_bpe
        from course_lib.subword.config import BpeConfig

        plain = {} if name.endswith("lossless") else {"lossless": False, "byte_fallback": False}
        started = time.perf_counter()
        train_bpe([source], target, BpeConfig(vocab_size=BPE, **plain), show_progress=False)
    elif name == "bpe-bare":
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        started = time.perf_counter()
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        specials = ["<unk>", "<s>", "</s>"]
        trainer = trainers.BpeTrainer(
            vocab_size=BPE, min_frequency=1, special_tokens=specials, limit_alphabet=8000, show_progress=False
        )
        if source.suffix == ".txt":
            tokenizer.train([str(source)], trainer)
        else:
            from course_lib.subword.text import sentences

            tokenizer.train_from_iterator(sentences([source]), trainer)
        target.mkdir()
        tokenizer.save(str(target / "tokenizer.json"))
    elif name == "unigram-ours":
        from course_lib.subword.config import UnigramConfig
        from course_lib.subword.unigram import train_unigram

        started = time.perf_counter()
        train_unigram([source], target, UnigramConfig(vocab_size=UNIGRAM))
    elif name == "unigram-bare":
        import sentencepiece

        started = time.perf_counter()
        if source.suffix == ".txt":
            given: dict[str, Any] = {"input": str(source)}
        else:
            from course_lib.subword.text import sentences

            given = {"sentence_iterator": sentences([source])}
        target.mkdir()
        sentencepiece.SentencePieceTrainer.train(
            **given, model_prefix=str(target / "m"), vocab_size=UNIGRAM, byte_fallback=True, normalization_rule_name="identity",
            remove_extra_whitespaces=False, unk_id=0, bos_id=1, eos_id=2, max_sentence_length=16384, num_threads=2, minloglevel=2,
        )  # fmt: skip
    seconds = time.perf_counter() - started
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


def measured(name: str, source: Path) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tests.bench.bench_tokenizers",
            "--work",
            name,
            str(source),
            str(Path(folder) / "out"),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = map(float, done.stdout.strip().splitlines()[-1].split())
    return seconds, megabytes


def compare(ours: str, bare: str, source: Path, rounds: int) -> None:
    pairs = [(measured(ours, source), measured(bare, source)) for _ in range(rounds)]
    wall = statistics.median(a[0] / b[0] for a, b in pairs)
    memory = statistics.median(a[1] / b[1] for a, b in pairs)
    print(
        f"{ours:<18}{source.suffix:<7} {statistics.median(a[0] for a, _ in pairs):6.2f} s, bare {statistics.median(b[0] for _, b in pairs):6.2f} s: "
        f"wall ratio {wall:.3f} (<= 1.05), memory ratio {memory:.2f} (<= 1.2; {pairs[0][0][1]:.0f} MB)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("lines", type=Path)
    parser.add_argument("documents", type=Path)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.lines, options.documents)
        return
    for ours, bare, source in (
        ("bpe-ours", "bpe-bare", options.lines),
        ("bpe-ours-lossless", "bpe-bare", options.lines),
        ("bpe-ours", "bpe-bare", options.documents),
        ("unigram-ours", "unigram-bare", options.lines),
        ("unigram-ours", "unigram-bare", options.documents),
    ):
        compare(ours, bare, source, options.rounds)


if __name__ == "__main__":
    main()

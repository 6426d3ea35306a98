"""`encode_text` on a corpus, alone and against the port's tokenizer: same ids, MB/s of UTF-8, and the ratio.

    python -m tests.bench.bench_swe DOCUMENTS.jsonl... --vocabulary DIR [--port PYTHON]

DIR holds vocab.txt and emoji.json; PYTHON has transformers 4.42 to 4.57, which the course does not install. Asked for: 1 MB/s a core.
With cleaning the ids differ where there are prices: the port has a rule of its own, we have the original's.
"""

import argparse
import subprocess
import time
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile

import orjson
from course_lib.documents import read_texts
from course_lib.gptsan.swe import load

PORT = """
import json, sys, time
from hashlib import sha256
from transformers.models.deprecated.gptsan_japanese.tokenization_gptsan_japanese import GPTSanJapaneseTokenizer
folder, file, clean = sys.argv[1:]
tokenizer = GPTSanJapaneseTokenizer(folder + "/vocab.txt", folder + "/emoji.json")
texts = json.load(open(file, encoding="utf8"))
started = time.perf_counter()
ids = [[tokenizer.vocab[t] for t in tokenizer.subword_tokenizer.tokenize(text, clean=clean == "True")] for text in texts]
print(time.perf_counter() - started, sha256(repr(ids).encode()).hexdigest())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--port", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    texts = [text for path in options.documents for text in read_texts(path)]
    size = sum(len(text.encode()) for text in texts) / 1e6
    encoding = load(options.vocabulary / "vocab.txt", options.vocabulary / "emoji.json")
    with NamedTemporaryFile(suffix=".json") as file:
        file.write(orjson.dumps(texts))
        file.flush()
        for clean in (False, True):
            times, ratios, same = [], [], True
            for _ in range(options.rounds):
                started = time.perf_counter()
                ids = [encoding.encode_text(text, clean) for text in texts]
                times.append(time.perf_counter() - started)
                if options.port:
                    command = [options.port, "-c", PORT, str(options.vocabulary), file.name, str(clean)]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    seconds, digest = done.stdout.split()[-2:]
                    ratios.append(float(seconds) / times[-1])
                    same = same and digest == sha256(repr(ids).encode()).hexdigest()
            against = f", {median(ratios):.1f} x the port's speed, same ids: {same}" if ratios else ""
            print(f"clean={clean}: {size:.1f} MB at {size / median(times):.2f} MB/s (>= 1){against}", flush=True)


if __name__ == "__main__":
    main()

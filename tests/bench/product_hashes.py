"""SHA-256 of everything that the course makes deterministically, and the losses of 30 training steps of each kind of run.

For changes that must not change what the course writes: record before, compare after.

    python -m tests.bench.product_hashes -o before.json
    python -m tests.bench.product_hashes --compare before.json

Every product is made by its `course` verb, so the script survives any change inside the library. Sources are the bundled data and
models with random weights. Losses are compared exactly: on one machine they are the same bits.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "data"
# Files that name a time, a duration or a place.
VARYING = {"manifest.json", "log.jsonl"}
STEPS = 30
Record = dict[str, str]


def course(*arguments: object) -> str:
    """Runs a verb in this checkout; returns what it prints."""
    command = [sys.executable, "-m", "course_lib.cli", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[2:])}: exit {done.returncode}\n{done.stderr[-2000:]}")
    print("·", *arguments, flush=True)
    return done.stdout


def digests(place: Path, name: str) -> Record:
    """The digest of a file, or of every file of a folder, under the product's name."""
    paths = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    found = {}
    for path in paths:
        if path.name not in VARYING:
            part = path.name if path == place else path.relative_to(place)
            found[f"{name}/{part}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def texts(work: Path) -> Record:
    """Chapters 1 to 3 and the tokens of chapter 4."""
    course("corpus", "wikipedia", DATA / "jawiki-sample.xml.bz2", "-o", work / "wiki.jsonl", "-c", "tiny")
    course("corpus", "webtext", DATA / "webtext-sample.txt.xz", "-o", work / "web.jsonl", "-c", "tiny")
    for name in ("wiki", "web"):
        course("segment", work / f"{name}.jsonl", "-o", work / f"{name}.txt", "-c", "tiny")
    for kind in ("bpe", "unigram"):
        course("tokenizer", kind, work / "wiki.txt", work / "web.txt", "-o", work / kind, "-c", "tiny")
        course("tokenize", work / "wiki.txt", "--tokenizer", work / kind, "-o", work / f"tokens-{kind}", "--append-eod")
    made = ("wiki.jsonl", "web.jsonl", "wiki.txt", "web.txt", "bpe", "unigram")
    tokens = [f"tokens-{kind}.{end}" for kind in ("bpe", "unigram") for end in ("bin", "idx")]
    return {key: value for name in (*made, *tokens) for key, value in digests(work / name, name).items()}


def conversions(work: Path) -> Record:
    """FasterTransformer folders of both families on one and two ranks, Megatron, TensorFlow, the extra stage."""
    from tests.gptsan.bundle_writer import random_variables, write_original
    from tests.pretrain import megatron_writer
    from tests.serving import models

    found: Record = {}
    for family in models.FAMILIES:
        source = models.save(models.build(family), work / f"hf-{family}")
        for ranks in (1, 2):
            for dtype in ("fp32", "fp16"):
                name = f"ft-{family}-{ranks}-{dtype}"
                course("ft", "export", source, "-o", work / name, "--tensor-parallel", ranks, "--dtype", dtype)
                found |= digests(work / name, name)
    for ranks in (1, 2):
        megatron_writer.pipeline(megatron_writer.model(), work / f"megatron-{ranks}", ranks)
        course("convert", "megatron", work / f"megatron-{ranks}", "-o", work / f"from-megatron-{ranks}")
        found |= digests(work / f"from-megatron-{ranks}" / "model.safetensors", f"from-megatron-{ranks}")
    original = write_original(work / "original", random_variables())
    course("gptsan", "import-tf", original, "-o", work / "gptsan")
    course("gptsan", "add-extra-stage", work / "gptsan", "-o", work / "extra", "--layers", 2)
    for name in ("gptsan", "extra"):
        found |= {key: value for key, value in digests(work / name, name).items() if not key.endswith(".yaml")}
    return found


def runs(work: Path) -> tuple[Record, dict[str, list[float]]]:
    """30 steps of each kind of run, prefix files, GPTSAN's vocabulary and examples, CTranslate2 models."""
    from tests.prefix import bases

    losses: dict[str, list[float]] = {}
    found: Record = {}
    short = ["--set", f"engine.max_steps={STEPS}", "--set", "engine.logging_freq=1", "--set", "engine.tracking=[]"]
    data = ["--set", f"data.input=[{work / 'tokens-bpe'}]", "--set", f"data.tokenizer={work / 'bpe'}"]
    course("pretrain", "-c", "gpt2-tiny.yaml", "-o", work / "gpt2-run", *short, *data)

    course("gptsan", "vocabulary", work / "wiki.jsonl", "-o", work / "vocabulary", "-c", "tiny")
    listed = [DATA / "classified" / "list.csv", "--tokenizer", work / "vocabulary"]
    course("gptsan", "encode", *listed, "-o", work / "classes", "-c", "tiny")
    found |= digests(work / "vocabulary", "vocabulary") | digests(work / "classes", "classes")
    examples = ["--set", f"data.input={work / 'classes'}", "--set", f"data.tokenizer={work / 'vocabulary'}"]
    course("gptsan", "train", "-c", "gptsan-tiny.yaml", "-o", work / "gptsan-run", *short, *examples)

    lines = [json.dumps({"text": f"早稲田大学で{n}回、牛丼を食べた。"}, ensure_ascii=False) for n in range(40)]
    (work / "task.jsonl").write_text("\n".join(lines) + "\n", encoding="utf8")
    for family in bases.FAMILIES:
        (work / family).mkdir()
        base = bases.folder(work / family, family)
        task = [f"model.base={base}", f"data.input={work / 'task.jsonl'}", "model.length=4", "data.max_length=44"]
        course("ct2", "export", base, "-o", work / f"ct2-{family}")
        found |= digests(work / f"ct2-{family}" / "model.bin", f"ct2-{family}")
        run = work / f"prefix-{family}-run"
        chosen = [part for key in task for part in ("--set", key)]
        course("prefix", "train", "-c", "prefix-tiny.yaml", "-o", run, *short, *chosen)
        for form in ("course", "rinna", "peft"):
            target = work / f"prefix-{family}-{form}"
            course("prefix", "convert", run / "prefix.safetensors", "-o", target, "--form", form, "--base", base)
            found |= digests(target, target.name)
    for run in sorted(work.glob("*-run")):
        entries = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf8").splitlines()]
        losses[run.name] = [entry["loss"] for entry in entries if entry["kind"] == "train"]
    return found, losses


def main() -> None:
    """Records or compares; exit code 1 names what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where the record goes")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier record")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        os.environ["COURSE_WORKSPACE"] = str(work / "workspace")
        hashes = texts(work) | conversions(work)
        more, losses = runs(work)
    record: dict[str, dict[str, Any]] = {"hashes": hashes | more, "losses": losses}
    if chosen.output:
        chosen.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf8")
    print(f"{len(record['hashes'])} files, losses of {len(losses)} runs")
    if chosen.compare:
        before = json.loads(chosen.compare.read_text(encoding="utf8"))
        different = [
            key for part in record for key in sorted(before[part].keys() | record[part].keys())
            if before[part].get(key) != record[part].get(key)
        ]  # fmt: skip
        print("\n".join(different) or "no difference")
        sys.exit(bool(different))


if __name__ == "__main__":
    main()

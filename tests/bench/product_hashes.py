"""SHA-256 of everything that the course makes deterministically, and the losses of 30 training steps of each kind of run.

For changes that must not change what the course writes:

    python -m tests.bench.product_hashes > before.txt      # and after the change
    python -m tests.bench.product_hashes | diff before.txt -

Every product is made by its `course` command, so the script survives any change inside the library. Sources are the bundled data and
models with random weights. On one machine, losses are the same bits.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gptsan.bundle_writer import random_variables, write_original
from tests.prefix import bases
from tests.pretrain import megatron_writer
from tests.serving import models

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "data"
# Files that name a time, a duration or a place.
VARYING = {"manifest.json", "log.jsonl", "output.txt"}
SHORT = ["--set", "engine.max_steps=30", "--set", "engine.logging_freq=1", "--set", "engine.tracking=[]"]


def course(*arguments: object) -> None:
    """Run a command in this checkout."""
    command = [sys.executable, "-m", "course_lib.cli", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[2:])}: exit {done.returncode}\n{done.stderr[-2000:]}")
    print("·", *arguments, file=sys.stderr, flush=True)


def show(work: Path, *names: str) -> None:
    """Print the digests of files, and of all files of folders."""
    for name in names:
        written = work / name
        paths = [written] if written.is_file() else sorted(written.rglob("*"))
        for path in filter(Path.is_file, paths):
            if path.name not in VARYING:
                print(hashlib.sha256(path.read_bytes()).hexdigest(), path.relative_to(work), flush=True)


def texts(work: Path) -> None:
    """Chapters 1 to 3 and the tokens of chapter 4."""
    course("corpus", "wikipedia", DATA / "jawiki-sample.xml.bz2", "-o", work / "wiki.jsonl", "-c", "tiny")
    course("corpus", "webtext", DATA / "webtext-sample.txt.xz", "-o", work / "web.jsonl", "-c", "tiny")
    for name in ("wiki", "web"):
        course("segment", work / f"{name}.jsonl", "-o", work / f"{name}.txt", "-c", "tiny")
    show(work, "wiki.jsonl", "web.jsonl", "wiki.txt", "web.txt")
    for kind in ("bpe", "unigram"):
        course("tokenizer", kind, work / "wiki.txt", work / "web.txt", "-o", work / kind, "-c", "tiny")
        course("tokenize", work / "wiki.txt", "--tokenizer", work / kind, "-o", work / f"tokens-{kind}", "--append-eod")
        show(work, kind, f"tokens-{kind}.bin", f"tokens-{kind}.idx")


def conversions(work: Path) -> None:
    """FasterTransformer folders of both families on one and two ranks, Megatron, TensorFlow, the extra stage."""
    for family in models.FAMILIES:
        source = models.save(models.build(family), work / f"hf-{family}")
        for ranks in (1, 2):
            for dtype in ("fp32", "fp16"):
                name = f"ft-{family}-{ranks}-{dtype}"
                course("ft", "export", source, "-o", work / name, "--tensor-parallel", ranks, "--dtype", dtype)
                show(work, name)
    for ranks in (1, 2):
        megatron_writer.pipeline(megatron_writer.model(), work / f"megatron-{ranks}", ranks)
        course("convert", "megatron", work / f"megatron-{ranks}", "-o", work / f"from-megatron-{ranks}")
        show(work, f"from-megatron-{ranks}/model.safetensors")
    course("gptsan", "import-tf", write_original(work / "original", random_variables()), "-o", work / "gptsan")
    course("gptsan", "add-extra-stage", work / "gptsan", "-o", work / "extra", "--layers", 2)
    show(work, "gptsan/model.safetensors", "extra/model.safetensors")


def runs(work: Path) -> None:
    """Steps of each kind of run, prefix files, GPTSAN's vocabulary and examples, CTranslate2 models."""
    data = ["--set", f"data.input=[{work / 'tokens-bpe'}]", "--set", f"data.tokenizer={work / 'bpe'}"]
    course("pretrain", "-c", "gpt2-tiny-text.yaml", "-o", work / "gpt2-run", *SHORT, *data)

    course("gptsan", "vocabulary", work / "wiki.jsonl", "-o", work / "vocabulary", "-c", "tiny")
    listed = [DATA / "classified" / "list.csv", "--tokenizer", work / "vocabulary"]
    course("gptsan", "encode", *listed, "-o", work / "classes", "-c", "tiny")
    show(work, "vocabulary", "classes")
    examples = ["--set", f"data.input={work / 'classes'}", "--set", f"data.tokenizer={work / 'vocabulary'}"]
    course("gptsan", "train", "-c", "gptsan-tiny.yaml", "-o", work / "gptsan-run", *SHORT, *examples)

    lines = [json.dumps({"text": f"早稲田大学で{n}回、牛丼を食べた。"}, ensure_ascii=False) for n in range(40)]
    (work / "task.jsonl").write_text("\n".join(lines) + "\n", encoding="utf8")
    for family in bases.FAMILIES:
        (work / family).mkdir()
        base = bases.folder(work / family, family)
        course("ct2", "export", base, "-o", work / f"ct2-{family}")
        run = work / f"prefix-{family}-run"
        task = [f"model.base={base}", f"data.input={work / 'task.jsonl'}", "model.length=4"]
        task += ["data.form=lines", "data.max_length=44", "data.dev_size=4"]
        changes = [part for key in task for part in ("--set", key)]
        course("prefix", "train", "-c", "prefix-tiny.yaml", "-o", run, *SHORT, *changes)
        show(work, f"ct2-{family}/model.bin")
        for form in ("course", "rinna", "peft"):
            target = f"prefix-{family}-{form}"
            course("prefix", "convert", run / "prefix.safetensors", "-o", work / target, "--form", form, "--base", base)
            show(work, target)
    for run in sorted(work.glob("*-run")):
        entries = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf8").splitlines()]
        print(run.name, [entry["loss"] for entry in entries if entry["kind"] == "train"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COURSE_WORKSPACE"] = f"{folder}/workspace"
        for part in (texts, conversions, runs):
            part(Path(folder))

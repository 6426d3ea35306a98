"""Checks for everything that the course needs on this machine: what was found, what fails without it, how to get it.

Installs nothing. Torch, whose import takes seconds, is imported only on a machine with a GPU.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from course_lib import __version__
from course_lib.files import human_size
from course_lib.language.columns import padded
from course_lib.language.words import tr
from course_lib.parallel import default_workers
from course_lib.paths import root

LIBRARIES = ("torch", "transformers", "tokenizers", "sentencepiece", "deepspeed", "fugashi", "jumandic", "numpy")
# Devices of NVIDIA's and AMD's drivers, and of Windows under WSL.
GPUS = ("/dev/nvidia0", "/dev/kfd", "/dev/dxg")
PROBE = "外国人参政権"


@dataclass(frozen=True)
class Check:
    """The result of one check. `ok` is None if the part is absent but optional."""

    part: str
    ok: bool | None
    found: str
    cost: str = ""  # what fails or is skipped without it
    remedy: str = ""  # how to get it


def examine() -> list[Check]:
    """Run every check."""
    parts = (_python, _torch, _deepspeed, _compiler, _mecab, _jumanpp, _triton, _font, _disk, _memory)
    return [part() for part in parts]


def report(checks: list[Check]) -> dict[str, Any]:
    """Return the checks and library versions as JSON values for a bug report, without paths or user names."""
    return {
        "course_lib": __version__,
        "platform": platform.platform(),
        "cores": default_workers(),
        "versions": {name: _version(name) for name in LIBRARIES},
        "checks": [asdict(check) | {"found": _without_paths(check.found)} for check in checks],
    }


def _without_paths(text: str) -> str:
    """Shorten each absolute path in a text to its last component, as in `…/mecabrc`."""
    return re.sub(r"(?<![\w.:/])(?:/[^/\s'\",:;()]+)*/([^/\s'\",:;()]+)", r"…/\1", text)


def table(checks: list[Check]) -> str:
    """Format the checks as text, one line each, and two more lines for a part that is missing."""
    states, lines = {True: tr("ok"), False: tr("MISSING"), None: tr("absent")}, []
    for check in checks:
        lines.append(f"{padded(check.part, '<20')}{padded(states[check.ok], '<9')}{check.found}".rstrip())
        if not check.ok:
            lines.append(" " * 20 + tr("without it: {cost}", cost=check.cost))
            lines.append(" " * 20 + tr("to get it: {remedy}", remedy=check.remedy))
    return "\n".join(lines)


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    return Check("Python", good, platform.python_version(), tr("nothing runs"), tr("install Python 3.11 or later"))


def _torch() -> Check:
    cost, remedy, version = tr("chapters 4–7"), "pip install torch==2.13.0", _version("torch")
    device = tr("CPU, {threads} threads (no GPU: the tiny profile needs none)", threads=default_workers())
    try:
        if version and any(Path(each).exists() for each in GPUS):
            import torch

            if torch.cuda.is_available():
                card = torch.cuda.get_device_properties(0)
                device = f"{torch.cuda.device_count()} × {card.name}, {human_size(card.total_memory)}"
            else:
                device = tr("CPU: torch cannot use this machine's GPU; compare its build with the driver's version")
    except (ImportError, OSError) as error:
        return Check("torch", False, str(error).splitlines()[0], cost, remedy)
    found = tr("{version} on {device}", version=version, device=device) if version else ""
    return Check("torch", version is not None, found, cost, remedy)


def _package(part: str, package: str, cost: str, remedy: str, optional: bool = False) -> Check:
    version = _version(package)
    absent = None if optional else False
    return Check(part, True if version else absent, f"{package} {version}" if version else "", cost, remedy)


def _deepspeed() -> Check:
    return _package("DeepSpeed", "deepspeed", tr("ZeRO training in chapters 4–6"), "pip install deepspeed==0.19.8")


def _triton() -> Check:
    cost = tr("chapter 7 answers requests inside the Python process, without a server")
    remedy = tr("pip install --no-deps nvidia-pytriton==0.7.0 (Linux x86-64), or its container: `course serve --print`")
    return _package(tr("Triton server"), "nvidia-pytriton", cost, remedy, optional=True)


def _font() -> Check:
    cost = tr("figures show boxes instead of Japanese characters")
    return _package(tr("Japanese font"), "matplotlib-fontja", cost, "pip install matplotlib-fontja")


def _compiler() -> Check:
    compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    ninja = bool(_version("ninja") or shutil.which("ninja"))
    has_ninja = tr("yes") if ninja else tr("no")
    found = f"{Path(compiler).name}, ninja {has_ninja}" if compiler else ""
    cost = tr("training on CPU ranks, and offload: DeepSpeed compiles extensions at first use (chapter 4)")
    return Check(tr("C++ compiler"), bool(compiler and ninja), found, cost, "apt-get install g++; pip install ninja")


def _mecab() -> Check:
    try:
        import jumandic
        from fugashi import GenericTagger

        words = GenericTagger(f"{jumandic.MECAB_ARGS} -Owakati").parse(PROBE)
    except (ImportError, RuntimeError) as error:
        # The last line with text in MeCab's message gives the reason.
        reason = next((line for line in str(error).splitlines()[::-1] if line.strip("- ")), "")
        cost = tr("segmentation, and so everything after chapter 1")
        return Check("MeCab + jumandic", False, reason, cost, "pip install fugashi jumandic")
    return Check("MeCab + jumandic", True, f"fugashi {_version('fugashi')}, jumandic {_version('jumandic')}: {words}")


def _jumanpp() -> Check:
    cost = tr("the course uses MeCab, its default segmenter; the notebook skips the comparison with Juman++")
    remedy = tr("build the official release with its model (github.com/ku-nlp/jumanpp, Releases), put jumanpp on PATH")
    named = os.environ.get("JUMANPP")
    binary = named or shutil.which("jumanpp")
    if binary is None:
        return Check("Juman++", None, "", cost, remedy)
    try:
        done = subprocess.run([binary, "--segment"], input=f"{PROBE}\n", capture_output=True, text=True, timeout=60)
        words = done.stdout.strip()
        works = words.replace(" ", "") == PROBE
        found = words if works else tr("does not segment: {answer}", answer=(done.stderr or done.stdout).strip()[:80])
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        works, found = False, str(error).splitlines()[0]
    return Check("Juman++", works, found, cost, remedy)


def _disk() -> Check:
    existing = next(path for path in (root(), *root().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    found = tr("{size} free for the workspace", size=human_size(free))
    return Check(tr("Disk"), free > 2e9, found, tr("tiny needs 1 GB, xl 500 GB"), tr("free some space"))


def _memory() -> Check:
    memory = psutil.virtual_memory()
    found = tr("{free} of {total} free", free=human_size(memory.available), total=human_size(memory.total))
    return Check(tr("Memory"), memory.available > 3e9, found, tr("tiny needs 3 GB free"), tr("close other programs"))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

"""Checks for all that the course needs on this machine: what was found, what fails without it, how to get it."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from course_lib import __version__
from course_lib.errors import one_line
from course_lib.files import human_size
from course_lib.language.columns import padded
from course_lib.language.words import tr, tr_noop
from course_lib.parallel import default_workers
from course_lib.paths import root

LIBRARIES = ("torch", "transformers", "tokenizers", "sentencepiece", "deepspeed", "fugashi", "jumandic", "numpy")
# Devices of NVIDIA's and AMD's drivers, and of Windows under WSL.
GPUS = ("/dev/nvidia0", "/dev/kfd", "/dev/dxg")
PROBE = "外国人参政権"


class Check(NamedTuple):
    """The result of one check. `ok` is None if the part is absent but optional."""

    part: str
    ok: bool | None
    found: str
    cost: str = ""  # what fails or is skipped without it
    remedy: str = ""  # how to get it


def examine() -> list[Check]:
    """Run every check."""
    return [Check(tr(part), *check(), tr(cost), tr(remedy)) for part, check, cost, remedy in PARTS]


def report(checks: list[Check]) -> dict[str, Any]:
    """Return the checks and library versions as JSON values for a bug report, without paths or user names."""
    # Each absolute path is cut to its last component, as in `…/mecabrc`.
    absolute = re.compile(r"(?<![\w.:/])(?:/[^/\s'\",:;()]+)*/([^/\s'\",:;()]+)")
    return {
        "course_lib": __version__,
        "platform": platform.platform(),
        "cores": default_workers(),
        "versions": {name: _version(name) for name in LIBRARIES},
        "checks": [check._asdict() | {"found": absolute.sub(r"…/\1", check.found)} for check in checks],
    }


def table(checks: list[Check]) -> str:
    """Format the checks as text, one line each, and two more lines for a part that is missing."""
    states, lines = {True: tr("ok"), False: tr("MISSING"), None: tr("absent")}, []
    for check in checks:
        lines.append(f"{padded(check.part, '<20')}{padded(states[check.ok], '<9')}{check.found}".rstrip())
        if not check.ok:
            lines.append(" " * 20 + tr("without it: {cost}", cost=check.cost))
            lines.append(" " * 20 + tr("to get it: {remedy}", remedy=check.remedy))
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(package: str, absent: bool | None = False) -> tuple[bool | None, str]:
    """Return whether a package is installed, and its name and version. What follows returns the same of other parts."""
    version = _version(package)
    return (True, f"{package} {version}") if version else (absent, "")


def _system() -> tuple[bool | None, str]:
    system, machine = platform.system(), platform.machine()
    if system == "Linux" and "microsoft" in platform.release().lower():
        system = "WSL 2"
    known = (system, machine) == ("Linux", "x86_64")
    name = f"{system.replace('Darwin', 'macOS')} {machine}"
    return known or None, tr("{name}: tried", name=name) if known else tr("{name}: not tried", name=name)


def _torch() -> tuple[bool, str]:
    version = _version("torch")
    if not version:
        return False, ""
    device = tr("CPU, {threads} threads (no GPU: the tiny profile needs none)", threads=default_workers())
    if any(Path(each).exists() for each in GPUS):
        try:
            import torch
        except (ImportError, OSError) as error:
            return False, one_line(error)
        device = tr("CPU: torch cannot use this machine's GPU; compare its build with the driver's version")
        if torch.cuda.is_available():
            device = f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    return True, tr("{version} on {device}", version=version, device=device)


def _compiler() -> tuple[bool | None, str]:
    compiler = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), "")
    ninja = bool(_version("ninja") or shutil.which("ninja"))
    return bool(compiler and ninja) or None, ", ".join(filter(None, [compiler, "ninja" * ninja]))


def _mecab() -> tuple[bool, str]:
    try:
        import jumandic
        from fugashi import GenericTagger

        words = GenericTagger(f"{jumandic.MECAB_ARGS} -Owakati").parse(PROBE)
        return True, f"fugashi {_version('fugashi')}, jumandic {_version('jumandic')}: {words}"
    except (ImportError, RuntimeError) as error:
        # The last line with text in MeCab's message gives the reason.
        return False, next((line for line in str(error).splitlines()[::-1] if line.strip("- ")), "")


def _jumanpp() -> tuple[bool | None, str]:
    binary = os.environ.get("JUMANPP") or shutil.which("jumanpp")
    if binary is None:
        return None, ""
    try:
        done = subprocess.run([binary, "--segment"], input=f"{PROBE}\n", capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        return False, one_line(error)
    words = done.stdout.strip()
    return words.replace(" ", "") == PROBE, (words or done.stderr.strip())[:80]


def _disk() -> tuple[bool, str]:
    existing = next(path for path in (root(), *root().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return free > 2e9, tr("{size} free for the workspace", size=human_size(free))


def _memory() -> tuple[bool, str]:
    memory = psutil.virtual_memory()
    free, total = human_size(memory.available), human_size(memory.total)
    return memory.available > 3e9, tr("{free} of {total} free", free=free, total=total)


# Each part, its check, what fails or is skipped without it, and how to get it.
PARTS: tuple[tuple[str, Callable[[], tuple[bool | None, str]], str, str], ...] = (
    (tr_noop("System"), _system,
     tr_noop("chapters 1–6 may run; chapter 7, too, without the Triton server where pip has none"),
     tr_noop("docs/systems.md says what is known of this system")),
    ("Python", lambda: (sys.version_info >= (3, 11), platform.python_version()),
     tr_noop("nothing runs"), tr_noop("install Python 3.11 or later")),
    ("torch", _torch, tr_noop("chapters 4–7"), "pip install torch==2.13.0"),
    ("DeepSpeed", partial(_package, "deepspeed"),
     tr_noop("ZeRO training in chapters 4–6"), "pip install deepspeed==0.19.8"),
    (tr_noop("C++ compiler"), _compiler,
     tr_noop("offload of the optimizer: DeepSpeed compiles an extension at first use"),
     "apt-get install g++; pip install ninja"),
    ("MeCab + jumandic", _mecab,
     tr_noop("segmentation, and so everything after chapter 1"), "pip install fugashi jumandic"),
    ("Juman++", _jumanpp,
     tr_noop("the course uses MeCab, its default segmenter; the notebook skips the comparison with Juman++"),
     tr_noop("build the official release with its model (github.com/ku-nlp/jumanpp, Releases), put jumanpp on PATH")),
    (tr_noop("Triton server"), partial(_package, "nvidia-pytriton", absent=None),
     tr_noop("chapter 7 answers requests inside the Python process, without a server"),
     tr_noop("pip install --no-deps nvidia-pytriton==0.7.0 (Linux x86-64)")),
    (tr_noop("Japanese font"), partial(_package, "matplotlib-fontja"),
     tr_noop("figures show boxes instead of Japanese characters"), "pip install matplotlib-fontja"),
    (tr_noop("Disk"), _disk, tr_noop("tiny needs 1 GB, xl 500 GB"), tr_noop("free some space")),
    (tr_noop("Memory"), _memory, tr_noop("tiny needs 3 GB free"), tr_noop("close other programs")),
)  # fmt: skip

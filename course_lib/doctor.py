"""Checks for everything that the course needs on this machine.

Each check reports what was found, what fails without it, and how to get it. This module installs nothing.
"""

import platform
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from course_lib import __version__
from course_lib.errors import CourseError
from course_lib.files import human_size
from course_lib.language.messages import Problem, Remark, padded, told
from course_lib.language.words import mark, tr
from course_lib.parallel import default_workers
from course_lib.paths import root


@dataclass(frozen=True)
class Check:
    """The result of one check, in English. `ok` is None if the part is absent but optional."""

    part: str
    ok: bool | None
    found: str
    cost: str = ""  # what fails or is skipped without it
    remedy: str = ""  # how to get it


def examine() -> list[Check]:
    """Run every check. This takes a few seconds, mostly to import torch."""
    parts = (_python, _torch, _deepspeed, _compiler, _mecab, _jumanpp, _triton, _font, _disk, _memory)
    return [part() for part in parts]


def report(checks: list[Check]) -> dict[str, Any]:
    """Return the checks and library versions as JSON values for a bug report, without paths or user names."""
    names = "torch transformers tokenizers sentencepiece deepspeed fugashi jumandic neologdn numpy"
    return {
        "course_lib": __version__,
        "platform": platform.platform(),
        "cores": default_workers(),
        "versions": {name: _version(name) for name in names.split()},
        "checks": [asdict(check) | {"found": _without_paths(check.found)} for check in checks],
    }


def _without_paths(text: str) -> str:
    """Shorten each absolute path in a text to its last component, as in `…/mecabrc`."""
    return re.sub(r"(?<![\w.:/])(?:/[^/\s'\",:;()]+)*/([^/\s'\",:;()]+)", r"…/\1", text)


def table(checks: list[Check]) -> str:
    """Format the checks as text in the reader's language, one line each.

    If a check fails, two more lines say what does not work without the part and how to get it.
    """
    lines = []
    for check in checks:
        state = tr({True: mark("ok"), False: mark("MISSING"), None: mark("absent")}[check.ok])
        lines.append(f"{padded(tr(check.part), '<20')}{padded(state, '<9')}{told(check.found)}".rstrip())
        if not check.ok:
            lines.append(f"{'':<20}{tr('without it: {cost}', cost=told(check.cost))}")
            lines.append(f"{'':<20}{tr('to get it: {remedy}', remedy=told(check.remedy))}")
    return "\n".join(lines)


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    return Check("Python", good, platform.python_version(), mark("nothing runs"), mark("install Python 3.11 or later"))


def _torch() -> Check:
    try:
        import torch
    except ImportError:
        return Check("torch", False, "", mark("chapters 4–7"), "pip install torch==2.13.0")
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        device = f"{torch.cuda.device_count()} × {card.name}, {human_size(card.total_memory)}"
    else:
        device = Remark(
            mark("CPU, {threads} threads (no GPU: the tiny profile needs none)"), threads=torch.get_num_threads()
        )
    return Check("torch", True, Remark(mark("{version} on {device}"), version=torch.__version__, device=device))


def _deepspeed() -> Check:
    version, remedy = _version("deepspeed"), "pip install deepspeed==0.19.8"
    return Check("DeepSpeed", version is not None, version or "", mark("ZeRO training in chapters 4–6"), remedy)


def _compiler() -> Check:
    compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    ninja = _version("ninja") or shutil.which("ninja")
    message = mark("{compiler}, ninja yes") if ninja else mark("{compiler}, ninja no")
    found = Remark(message, compiler=Path(compiler).name) if compiler else ""
    cost = mark("training on CPU ranks, and offload: DeepSpeed compiles extensions at first use (chapter 4)")
    return Check(mark("C++ compiler"), bool(compiler and ninja), found, cost, "apt-get install g++; pip install ninja")


def _mecab() -> Check:
    try:
        import jumandic
        from fugashi import GenericTagger

        words = GenericTagger(f"{jumandic.MECAB_ARGS} -Owakati").parse("外国人参政権")
    except (ImportError, RuntimeError) as error:
        # The last line with text in MeCab's message gives the reason.
        reason = next((line for line in str(error).splitlines()[::-1] if line.strip("- ")), "")
        cost = mark("segmentation, and so everything after chapter 1")
        return Check("MeCab + jumandic", False, reason, cost, "pip install fugashi jumandic")
    return Check("MeCab + jumandic", True, f"fugashi {_version('fugashi')}, jumandic {_version('jumandic')}: {words}")


def _jumanpp() -> Check:
    from course_lib.japanese.jumanpp import JumanppSegmenter, find_binary

    cost = mark("the course uses MeCab, its default segmenter; the notebook skips the comparison with Juman++")
    remedy = mark(
        "build the official release with its model (github.com/ku-nlp/jumanpp, Releases), put jumanpp on PATH"
    )
    try:
        if find_binary() is None:
            return Check("Juman++", None, "", cost, remedy)
        words = JumanppSegmenter.from_path().words(["外国人参政権"])[0]
    # Juman++ is installed but does not work.
    except CourseError as error:
        return Check("Juman++", False, Problem(str(error)), cost, remedy)
    return Check("Juman++", True, " ".join(words))


def _triton() -> Check:
    from course_lib.serving import server

    cost = mark("chapter 7 answers requests inside the Python process, without a server")
    try:
        server.find()
    except CourseError as error:
        return Check(mark("Triton server"), None, str(error).split(":")[0], cost, Problem(server.NEEDS))
    wheel = Remark(mark("in the wheel nvidia-pytriton {version}"), version=_version("nvidia-pytriton"))
    return Check(mark("Triton server"), True, wheel)


def _font() -> Check:
    try:
        # The import registers the font.
        import matplotlib_fontja  # noqa: F401
        from matplotlib import font_manager, rcParams

        family = rcParams["font.family"][0]
        font_manager.findfont(family, fallback_to_default=False)
    except (ImportError, ValueError):
        cost = mark("figures show boxes instead of Japanese characters")
        return Check(mark("Japanese font"), False, "", cost, "pip install matplotlib-fontja")
    return Check(mark("Japanese font"), True, str(family))


def _disk() -> Check:
    existing = next(p for p in (root(), *root().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    found = Remark(mark("{size} free for the workspace"), size=human_size(free))
    return Check(mark("Disk"), free > 2e9, found, mark("tiny needs 1 GB, xl 500 GB"), mark("free some space"))


def _memory() -> Check:
    memory = psutil.virtual_memory()
    sizes = {"free": human_size(memory.available), "total": human_size(memory.total)}
    found = Remark(mark("{free} of {total} free"), **sizes)
    return Check(
        mark("Memory"), memory.available > 3e9, found, mark("tiny needs 3 GB free"), mark("close other programs")
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

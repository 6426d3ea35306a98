"""The workspace of products: finds them, and builds those that are missing or stale.

A product is a folder workspace/<profile>/<chapter>/<name>/ with a manifest.json. The manifest holds the inputs with
their SHA-256, settings, library versions and counts. A Product describes how to build it. `product("corpus/wikipedia")`
returns the folder and builds it first if necessary, so any notebook can be run without the earlier ones. Fresh products
are not built again. This module does not interpret the files of a product.
"""

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from course_lib import __version__, chapters, config, files
from course_lib.errors import UsageError
from course_lib.paths import REPOSITORY

# `data` and `root` are part of this module's interface: workspace.data(…)
from course_lib.paths import data as data
from course_lib.paths import root as root
from course_lib.product import Product

LIBRARIES = (
    "numpy", "lxml", "rensa", "neologdn", "fugashi", "jumandic", "tokenizers", "sentencepiece", "transformers", "torch",
    "deepspeed",
)  # fmt: skip
Manifest = dict[str, Any]


@dataclass(frozen=True)
class State:
    """The state of one product, as `course status` shows it."""

    kind: Literal["fresh", "stale", "missing"]
    reason: str = ""


def product(name: str) -> Path:
    """Returns the folder of a product. It and its inputs are built first if they are missing or stale."""
    known = chapters.products()
    return _ensure(_among(known, name), known, {})


def find(name: str) -> Product:
    """The Product with this name. Raises UsageError with the allowed names if there is none."""
    return _among(chapters.products(), name)


def _among(known: dict[str, Product], name: str) -> Product:
    if name not in known:
        raise UsageError(f"product {name!r} does not exist in profile {config.profile()}; allowed: {', '.join(known)}")
    return known[name]


def manifest(name: str) -> Manifest | None:
    """The manifest of a built product; None if it is missing or unreadable."""
    path = root() / name / "manifest.json"
    try:
        loaded: Any = json.loads(path.read_text(encoding="utf8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return loaded if isinstance(loaded, dict) and loaded.keys() >= {"settings", "inputs", "outputs"} else None


def state(step: Product) -> State:
    """Whether a product is fresh, stale or missing. Builds nothing."""
    return _Look(chapters.products()).state(step)


def states() -> dict[str, State]:
    """The state of every product, by name, in building order. Each product and each file is examined once."""
    look = _Look(chapters.products())
    return {name: look.state(step) for name, step in look.known.items()}


class _Look:
    """The state of all products at one moment.

    It caches the state of every product it has examined, because many products have the same inputs. The cache is never
    updated, so each query makes a new object.
    """

    def __init__(self, known: dict[str, Product]) -> None:
        self.known = known
        self._states: dict[str, State] = {}
        self._same_file, self._fingerprint = cache(_same_file), cache(_fingerprint)

    def state(self, step: Product) -> State:
        """The state of a product, as it was at the first call for this product."""
        if step.name not in self._states:
            self._states[step.name] = self._examine(step)
        return self._states[step.name]

    def _examine(self, step: Product) -> State:
        built = manifest(step.name)
        if built is None:
            damaged = (root() / step.name / "manifest.json").exists()
            return State("stale", "manifest.json is damaged") if damaged else State("missing")
        if built["settings"] != _settings(step):
            return State("stale", "settings changed")
        if built.get("code") != _code_digest(step):
            return State("stale", f"the code of {', '.join(step.code)} changed")
        if built["inputs"].keys() != {_key(source) for source in step.inputs}:
            return State("stale", "made from other inputs")
        for relative, facts in built["outputs"].items():
            output = root() / step.name / relative
            if not output.exists() or output.stat().st_size != facts["bytes"]:
                return State("stale", f"{relative} was changed or removed")
        for source in step.inputs:
            recorded = built["inputs"][_key(source)]
            if isinstance(source, str):
                if self.state(_among(self.known, source)).kind != "fresh":
                    return State("stale", f"{source} is not fresh")
                changed = recorded != self._fingerprint(source)
            else:
                changed = not self._same_file(source, recorded["bytes"], recorded["mtime_ns"], recorded["sha256"])
            if changed:
                return State("stale", f"{_key(source)} changed")
        return State("fresh")


def size(name: str) -> int:
    """Size on disk of a product or of all products of a chapter [bytes]."""
    return sum(path.stat().st_size for path in (root() / name).rglob("*") if path.is_file())


def clean(chapters: Sequence[str]) -> int:
    """Removes the folders of chapters, with the files of killed runs in them; returns the number of bytes freed."""
    freed = 0
    for chapter in chapters:
        freed += size(chapter)
        shutil.rmtree(root() / chapter, ignore_errors=True)
    return freed


def _ensure(step: Product, known: dict[str, Product], done: dict[str, Path]) -> Path:
    """The folder of a product, built if necessary.

    Args:
        step: the product.
        known: all products by name.
        done: folders of the products that this call has already ensured; extended here.
    """
    if step.name not in done:
        inputs = [
            _ensure(_among(known, source), known, done) if isinstance(source, str) else files.require_file(source)
            for source in step.inputs
        ]
        done[step.name] = _built(step, known, inputs)
    return done[step.name]


def _built(step: Product, known: dict[str, Product], inputs: list[Path]) -> Path:
    target = root() / step.name
    if _Look(known).state(step).kind == "fresh":
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # A second notebook waits here instead of building the product again.
    with FileLock(target.parent / f".{target.name}.lock"):
        now = _Look(known).state(step)
        if now.kind == "fresh":
            return target
        print(f"building {step.name} ({now.reason or now.kind})", flush=True)
        with files.atomic_folder(target, ours=True) as folder:
            started = time.perf_counter()
            counts = step.build(folder, inputs)
            _write_manifest(folder, step, counts, time.perf_counter() - started)
    return target


def _write_manifest(folder: Path, step: Product, counts: dict[str, Any], seconds: float) -> None:
    outputs = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": files.sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    inputs = {_key(s): _fingerprint(s) if isinstance(s, str) else _file_facts(s) for s in step.inputs}
    content = {
        "product": step.name,
        "profile": config.profile(),
        "built": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seconds": round(seconds, 2),
        "settings": _settings(step),
        "code": _code_digest(step),
        "inputs": inputs,
        "counts": counts,
        "outputs": outputs,
        "versions": {"course_lib": __version__} | _versions(),
    }
    (folder / "manifest.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


@cache
def _versions() -> dict[str, str]:
    installed = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return {name: installed[name] for name in LIBRARIES if name in installed}


def _settings(step: Product) -> Any:
    return step.settings if isinstance(step.settings, dict) else config.to_dict(step.settings)


@cache
def _digest(code: str) -> str:
    """SHA-256 of the code of a module or package.

    For a package, figures.py and cli.py are left out, because they do not take part in building products.
    """
    path = Path(__file__).parent / code
    modules = [path] if path.is_file() else sorted(path.glob("*.py"))
    contents = (m.read_bytes() for m in modules if m == path or m.name not in ("figures.py", "cli.py"))
    return sha256(b"\0".join(contents)).hexdigest()


def _code_digest(step: Product) -> dict[str, str]:
    return {code: _digest(code) for code in step.code}


def _key(source: Path | str) -> str:
    if isinstance(source, str):
        return source
    return str(source.relative_to(REPOSITORY)) if source.is_relative_to(REPOSITORY) else source.name


def _fingerprint(name: str) -> str:
    """One hash of all outputs of a built product, for the manifests of products made from it."""
    built = manifest(name)
    return sha256(json.dumps(built["outputs"] if built else None, sort_keys=True).encode()).hexdigest()


def _file_facts(path: Path) -> dict[str, Any]:
    stat = path.stat()
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": files.sha256(path)}


def _same_file(path: Path, size: int, mtime_ns: int, digest: str) -> bool:
    """Whether a file is unchanged since its size, time and digest were recorded.

    The file is read again only if its size is the same and its modification time differs.
    """
    if not path.exists() or path.stat().st_size != size:
        return False
    return path.stat().st_mtime_ns == mtime_ns or files.sha256(path) == digest

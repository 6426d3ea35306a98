"""Products (corpora, tokenizers, models, …): their definitions and state, and how missing or stale ones are built.

Each product is stored in a folder workspace/<profile>/<chapter>/<name>/ with a manifest.json, which contains the inputs
with their SHA-256 digests, the settings, library versions and counts. `products.WIKIPEDIA.path()` returns the folder,
building it first if necessary, so any notebook can be run without the earlier ones. Fresh products are not rebuilt.
This module does not interpret the files in a product.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from course_lib import __version__, files
from course_lib.language.words import tr
from course_lib.paths import REPOSITORY

# `data` and `root` are part of this module's interface: workspace.data(…)
from course_lib.paths import data as data
from course_lib.paths import root as root
from course_lib.settings import config, profiles

LIBRARIES = (
    "numpy", "lxml", "rensa", "neologdn", "fugashi", "jumandic", "tokenizers", "sentencepiece", "transformers", "torch",
    "deepspeed",
)  # fmt: skip
# Modules of a package that play no part in building products.
NO_PRODUCT = ("figures.py", "diagrams.py", "cli.py")
MANIFEST = "manifest.json"
Manifest = dict[str, Any]


@dataclass(frozen=True)
class State:
    """The state of a product, as shown by `course status`. The reason is in the reader's language."""

    kind: Literal["fresh", "stale", "missing"]
    reason: str = ""


@dataclass(frozen=True)
class Definition:
    """How a product is built in the current profile."""

    build: Callable[[Path, list[Path]], dict[str, Any]]  # (empty folder to fill, input paths) → counts
    settings: Any  # a settings dataclass or plain JSON values; a change makes the product stale
    inputs: "tuple[Path | Product, ...]"  # files, or other products whose folders `build` receives
    code: tuple[str, ...] = ()  # course_lib packages or modules; a change makes the product stale


@dataclass(frozen=True)
class Product:
    """A named output of the course, such as a corpus, a tokenizer or a model.

    Each profile may define a product differently. Products with the same name are equal.
    """

    name: str  # "<chapter>/<product>"
    define: Callable[[], Definition] = field(compare=False)

    @property
    def folder(self) -> Path:
        """The path of the product folder, which may not exist yet."""
        return root() / self.name

    def path(self) -> Path:
        """Return the folder, first building the product and its inputs if they are missing or stale."""
        return _ensure(self, {}, {})

    def state(self) -> State:
        """Return whether the product is fresh, stale or missing, without building anything."""
        return Snapshot().state(self)

    def manifest(self) -> Manifest | None:
        """Return the manifest of the built product, or None if it is missing or invalid."""
        return read_manifest(self.folder)


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest in a product's folder, or None if it is missing or invalid."""
    try:
        loaded: Any = json.loads((folder / MANIFEST).read_text(encoding="utf8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return loaded if isinstance(loaded, dict) and loaded.keys() >= {"settings", "inputs", "outputs"} else None


def product(name: str) -> Callable[[Callable[[], Definition]], Product]:
    """Return a decorator that turns a function returning a Definition into the product called `name`."""
    return partial(Product, name)


def states(products: Iterable[Product]) -> dict[str, State]:
    """Return the state of each product by name. Each product and each file is examined once."""
    snapshot = Snapshot()
    return {product.name: snapshot.state(product) for product in products}


def with_inputs(products: Iterable[Product]) -> list[Product]:
    """Return products and all products that they are built from, directly or indirectly, inputs first."""
    found: dict[str, Product] = {}

    def add(product: Product) -> None:
        if product.name not in found:
            for source in product.define().inputs:
                if isinstance(source, Product):
                    add(source)
            found[product.name] = product

    for product in products:
        add(product)
    return list(found.values())


class Snapshot:
    """A snapshot of the state of products.

    The state of each examined product is cached, because many products have the same inputs. The cache is never
    updated, so create a new object for each query.
    """

    def __init__(self, definitions: dict[str, Definition] | None = None) -> None:
        """Start a query. `definitions` caches the definitions by name and can be shared with later queries."""
        self._definitions = {} if definitions is None else definitions
        self._states: dict[str, State] = {}
        self._assumed: dict[str, Manifest] = {}
        self._same_file, self._fingerprint = cache(_same_file), cache(self._fingerprint_now)

    def assume(self, product: Product, manifest: Manifest) -> State:
        """Return the state of a product if its folder held the outputs of this manifest.

        Products that are examined later are examined as if it did. Its inputs must be examined or assumed first.
        """
        self._assumed[product.name] = manifest
        return self.state(product)

    def _manifest(self, product: Product) -> Manifest | None:
        return self._assumed.get(product.name) or product.manifest()

    def _fingerprint_now(self, product: Product) -> str:
        return _fingerprint(self._manifest(product))

    def state(self, product: Product) -> State:
        """Return the state of a product as of the first call for that product."""
        if product.name not in self._states:
            self._states[product.name] = self._examine(product, _definition(product, self._definitions))
        return self._states[product.name]

    def _examine(self, product: Product, definition: Definition) -> State:
        built = self._manifest(product)
        if built is None:
            damaged = (product.folder / MANIFEST).exists()
            return State("stale", tr("{name} is damaged", name=MANIFEST)) if damaged else State("missing")
        if built["settings"] != _settings(definition):
            return State("stale", tr("settings changed"))
        if built.get("code") != _code_digest(definition):
            return State("stale", tr("the code of {code} changed", code=", ".join(definition.code)))
        if built["inputs"].keys() != {_key(source) for source in definition.inputs}:
            return State("stale", tr("made from other inputs"))
        written = {} if product.name in self._assumed else built["outputs"]
        for relative, facts in written.items():
            output = product.folder / relative
            if not output.exists() or output.stat().st_size != facts["bytes"]:
                return State("stale", tr("{name} was changed or removed", name=relative))
        for source in definition.inputs:
            recorded = built["inputs"][_key(source)]
            if isinstance(source, Product):
                if self.state(source).kind != "fresh":
                    return State("stale", tr("{name} is not fresh", name=source.name))
                changed = recorded != self._fingerprint(source)
            else:
                changed = not self._same_file(source, recorded["bytes"], recorded["mtime_ns"], recorded["sha256"])
            if changed:
                return State("stale", tr("{name} changed", name=_key(source)))
        return State("fresh")


def size(name: str) -> int:
    """Return the size on disk of a product, or of all products in a chapter [bytes]."""
    return sum(path.stat().st_size for path in (root() / name).rglob("*") if path.is_file())


def _definition(product: Product, definitions: dict[str, Definition]) -> Definition:
    """Return the definition of a product, cached in `definitions`."""
    if product.name not in definitions:
        definitions[product.name] = product.define()
    return definitions[product.name]


def _ensure(product: Product, definitions: dict[str, Definition], done: dict[str, Path]) -> Path:
    """Return the folder of a product, first building the product and its inputs if necessary.

    `definitions` and `done` (folders) are caches by product name, shared with the inputs.
    """
    if product.name not in done:
        inputs = [
            _ensure(source, definitions, done) if isinstance(source, Product) else files.require_file(source)
            for source in _definition(product, definitions).inputs
        ]
        done[product.name] = _built(product, definitions, inputs)
    return done[product.name]


def _built(product: Product, definitions: dict[str, Definition], inputs: list[Path]) -> Path:
    target = product.folder
    if Snapshot(definitions).state(product).kind == "fresh":
        return target
    # If another notebook is already building the product, wait here instead of building it again.
    with locked(product):
        now = Snapshot(definitions).state(product)
        if now.kind == "fresh":
            return target
        reason = now.reason or tr("missing")
        print(tr("building {name} ({reason})", name=product.name, reason=reason), flush=True)
        definition = definitions[product.name]
        with files.atomic_folder(target, ours=True) as folder:
            started = time.perf_counter()
            counts = definition.build(folder, inputs)
            _write_manifest(folder, product.name, definition, counts, time.perf_counter() - started)
    return target


@contextmanager
def locked(product: Product) -> Iterator[None]:
    """Wait until no other process writes a product, and keep other processes from writing it during the block."""
    folder = product.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        yield


def _write_manifest(folder: Path, name: str, definition: Definition, counts: dict[str, Any], seconds: float) -> None:
    outputs = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": files.sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    content = {
        "product": name,
        "profile": profiles.name(),
        "built": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seconds": round(seconds, 2),
        "settings": _settings(definition),
        "code": _code_digest(definition),
        "inputs": {
            _key(source): _fingerprint(source.manifest()) if isinstance(source, Product) else _file_facts(source)
            for source in definition.inputs
        },
        "counts": counts,
        "outputs": outputs,
        "versions": {"course_lib": __version__} | _versions(),
    }
    (folder / MANIFEST).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


@cache
def _versions() -> dict[str, str]:
    installed = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return {name: installed[name] for name in LIBRARIES if name in installed}


def _settings(definition: Definition) -> Any:
    settings = definition.settings
    return settings if isinstance(settings, dict) else config.to_dict(settings)


@cache
def _digest(code: str) -> str:
    """Return the SHA-256 digest of the code in a module or package.

    In a package, the modules in NO_PRODUCT are left out.
    """
    path = Path(__file__).parents[1] / code
    modules = [path] if path.is_file() else sorted(path.glob("*.py"))
    contents = (m.read_bytes() for m in modules if m == path or m.name not in NO_PRODUCT)
    return sha256(b"\0".join(contents)).hexdigest()


def _code_digest(definition: Definition) -> dict[str, str]:
    return {code: _digest(code) for code in definition.code}


def _key(source: Path | Product) -> str:
    if isinstance(source, Product):
        return source.name
    return str(source.relative_to(REPOSITORY)) if source.is_relative_to(REPOSITORY) else source.name


def _fingerprint(built: Manifest | None) -> str:
    """Return a single hash of the outputs in a manifest, which the manifests of products built from it record."""
    return sha256(json.dumps(built["outputs"] if built else None, sort_keys=True).encode()).hexdigest()


def _file_facts(path: Path) -> dict[str, Any]:
    stat = path.stat()
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": files.sha256(path)}


def _same_file(path: Path, size: int, mtime_ns: int, digest: str) -> bool:
    """Return whether a file is unchanged since its size, modification time and digest were recorded.

    The file is read again only if its size is the same and its modification time differs.
    """
    if not path.exists() or path.stat().st_size != size:
        return False
    return path.stat().st_mtime_ns == mtime_ns or files.sha256(path) == digest

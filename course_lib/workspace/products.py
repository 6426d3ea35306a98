"""Products (corpora, tokenizers, models, …): what they are made of, their state, and how missing ones are built.

A product is a folder workspace/<profile>/<chapter>/<name>/ with a manifest.json: inputs with their SHA-256 digests,
settings, library versions and counts. `products.WIKIPEDIA.path()` returns the folder, building it first if necessary,
so any notebook can be run without the earlier ones. Fresh products are not rebuilt.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Required

from filelock import FileLock
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from course_lib import __version__, files, unmarked
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
NO_PRODUCT = ("figures.py", "diagrams.py")
MANIFEST = "manifest.json"
Manifest = dict[str, Any]
# No product takes longer to build: 30 years.
MOST_SECONDS = 1e9
# What no path may hold: a NUL character, and halves of characters, which are no UTF-8.
NO_PATH = re.compile("[\0\ud800-\udfff]")


class _Output(TypedDict):
    """What a manifest says about a file of the product."""

    bytes: int
    sha256: str


class _Input(_Output):
    """What a manifest says about a file that the product was built from."""

    mtime_ns: int


class _Content(TypedDict, total=False):
    """The parts of a manifest that this module reads."""

    settings: Required[dict[str, Any]]
    inputs: Required[dict[str, str | _Input]]
    outputs: Required[dict[str, _Output]]
    counts: dict[str, Any]
    code: dict[str, str]
    built: str
    seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]


_CONTENT = TypeAdapter(_Content)


@dataclass(frozen=True)
class State:
    """The state of a product, as shown by `course status`. The reason is in the reader's language."""

    kind: Literal["fresh", "stale", "missing"]
    reason: str = ""


@dataclass(frozen=True)
class Product:
    """A named output of the course, such as a corpus, a tokenizer or a model. Products of the same name are equal."""

    name: str  # "<chapter>/<product>"
    # (empty folder to fill, paths of the inputs, settings) → counts for the manifest
    build: Callable[[Path, list[Path], Any], dict[str, Any]] = field(compare=False)
    # a settings dataclass or plain JSON values, or a function that returns them; a change makes the product stale
    settings: Any = field(default_factory=dict, compare=False)
    # files, or other products whose folders `build` receives, or a function that returns them
    inputs: "Callable[[], Sequence[Path | Product]] | Sequence[Path | Product]" = field(default=(), compare=False)
    # course_lib packages or modules; a change makes the product stale
    code: tuple[str, ...] = field(default=(), compare=False)

    @property
    def folder(self) -> Path:
        """The path of the product folder, which may not exist yet."""
        return root() / self.name

    def path(self) -> Path:
        """Return the folder, first building the product and its inputs if they are missing or stale."""
        return Snapshot().build(self)

    def state(self) -> State:
        """Return whether the product is fresh, stale or missing, without building anything."""
        return Snapshot().state(self)

    def manifest(self) -> Manifest | None:
        """Return the manifest of the built product, or None if it is missing or invalid."""
        return read_manifest(self.folder)

    def resolve(self) -> "tuple[Any, tuple[Path | Product, ...]]":
        """Return the settings in the current profile as the dataclass or values that `build` gets, and the inputs."""
        settings = self.settings() if callable(self.settings) else self.settings
        return settings, tuple(self.inputs() if callable(self.inputs) else self.inputs)


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest in a product's folder, or None if it is missing or invalid.

    It may come from an archive of somebody else: one with outputs outside of the folder is invalid.
    """
    loaded = unmarked.json_of(folder / MANIFEST)
    try:
        _CONTENT.validate_python(loaded, strict=True)
    except ValidationError:
        return None
    return loaded if all(map(_is_inside, loaded["outputs"])) else None


def _is_inside(name: str) -> bool:
    """Return whether a relative path names something inside its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and not NO_PATH.search(name)


def states(products: Iterable[Product]) -> dict[str, State]:
    """Return the state of each product by name. Each product and each file is examined once."""
    snapshot = Snapshot()
    return {product.name: snapshot.state(product) for product in products}


def with_inputs(products: Iterable[Product]) -> list[Product]:
    """Return products and all products that they are built from, directly or indirectly, inputs first."""
    found: dict[Product, None] = {}
    for product in products:
        inputs = with_inputs(source for source in product.resolve()[1] if isinstance(source, Product))
        found |= dict.fromkeys([*inputs, product])
    return list(found)


class Snapshot:
    """The state of products at one time. Each product and file is examined once, because many have the same inputs."""

    def __init__(self) -> None:
        self._states: dict[Product, State] = {}
        self._assumed: dict[Product, Manifest] = {}
        self._resolved = cache(Product.resolve)
        self._same_file = cache(_same_file)
        self._fingerprint = cache(lambda product: _fingerprint(self._manifest(product)))

    def assume(self, product: Product, manifest: Manifest) -> State:
        """Return the state of a product, now and for what is examined later, as if its folder held these outputs."""
        self._assumed[product] = manifest
        return self.state(product)

    def build(self, product: Product) -> Path:
        """Return the folder of a product, first building the product and its inputs if they are missing or stale."""
        if self.state(product).kind == "fresh":
            return product.folder
        settings, sources = self._resolved(product)
        inputs = [self.build(each) if isinstance(each, Product) else files.require_file(each) for each in sources]
        # If another notebook is already building the product, wait here instead of building it again.
        with locked(product):
            state = self._examine(product)
            if state.kind != "fresh":
                reason = state.reason or tr("missing")
                print(tr("building {name} ({reason})", name=product.name, reason=reason), flush=True)
                with files.atomic_folder(product.folder, ours=True) as folder:
                    started = time.perf_counter()
                    counts = product.build(folder, inputs, settings)
                    seconds = time.perf_counter() - started
                    _write_manifest(folder, product, settings, sources, counts, seconds)
        self._states[product] = State("fresh")
        return product.folder

    def state(self, product: Product) -> State:
        """Return the state of a product as of the first call for that product."""
        if product not in self._states:
            self._states[product] = self._examine(product)
        return self._states[product]

    def _manifest(self, product: Product) -> Manifest | None:
        return self._assumed.get(product) or product.manifest()

    def _examine(self, product: Product) -> State:
        (settings, sources), built = self._resolved(product), self._manifest(product)
        if built is None:
            damaged = (product.folder / MANIFEST).exists()
            return State("stale", tr("{name} is damaged", name=MANIFEST)) if damaged else State("missing")
        if built["settings"] != _values(settings):
            return State("stale", tr("settings changed"))
        if built.get("code") != _code_digests(product):
            return State("stale", tr("the code of {code} changed", code=", ".join(product.code)))
        if built["inputs"].keys() != {_key(source) for source in sources}:
            return State("stale", tr("made from other inputs"))
        for relative, facts in () if product in self._assumed else built["outputs"].items():
            output = product.folder / relative
            if not output.exists() or output.stat().st_size != facts["bytes"]:
                return State("stale", tr("{name} was changed or removed", name=relative))
        for source in sources:
            recorded = built["inputs"][_key(source)]
            if isinstance(source, Product):
                if self.state(source).kind != "fresh":
                    return State("stale", tr("{name} is not fresh", name=source.name))
                changed = recorded != self._fingerprint(source)
            else:
                # What is a file now was a product then.
                known = isinstance(recorded, dict)
                changed = not known or not self._same_file(
                    source, recorded["bytes"], recorded["mtime_ns"], recorded["sha256"]
                )
            if changed:
                return State("stale", tr("{name} changed", name=_key(source)))
        return State("fresh")


def size(name: str) -> int:
    """Return the size on disk of a product, or of all products in a chapter [bytes]."""
    return sum(path.stat().st_size for path in (root() / name).rglob("*") if path.is_file())


def locked(product: Product) -> FileLock:
    """Return a lock to be held while a product is written: `with locked(product):` waits for other processes."""
    product.folder.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(lock_path(product.folder))


def lock_path(folder: Path) -> Path:
    """Return the path of the lock of a product's folder."""
    return folder.parent / f".{folder.name}.lock"


def _write_manifest(
    folder: Path,
    product: Product,
    settings: Any,
    sources: Sequence[Path | Product],
    counts: dict[str, Any],
    seconds: float,
) -> None:
    # The mark of the folder is written behind the manifest.
    written = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / files.MARK]
    inputs: dict[str, Any] = {
        _key(source): _fingerprint(source.manifest())
        if isinstance(source, Product)
        else _facts(source) | {"mtime_ns": source.stat().st_mtime_ns}
        for source in sources
    }
    content = {
        "product": product.name,
        "profile": profiles.name(),
        "built": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seconds": round(seconds, 2),
        "settings": _values(settings),
        "code": _code_digests(product),
        "inputs": inputs,
        "counts": counts,
        "outputs": {str(path.relative_to(folder)): _facts(path) for path in written},
        "versions": {"course_lib": __version__} | _versions(),
    }
    files.write_json(folder / MANIFEST, content)


def _values(settings: Any) -> Any:
    """Return settings as JSON values, as the manifest holds them."""
    return settings if isinstance(settings, dict) else config.to_dict(settings)


def _facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": files.sha256(path)}


@cache
def _versions() -> dict[str, str]:
    installed = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return {name: installed[name] for name in LIBRARIES if name in installed}


@cache
def _digest(code: str) -> str:
    """Return the SHA-256 digest of the code in a module, or in a package without the modules in NO_PRODUCT."""
    path = Path(__file__).parents[1] / code
    modules = [path] if path.is_file() else sorted(path.glob("*.py"))
    contents = (m.read_bytes() for m in modules if m == path or m.name not in NO_PRODUCT)
    return sha256(b"\0".join(contents)).hexdigest()


def _code_digests(product: Product) -> dict[str, str]:
    return {code: _digest(code) for code in product.code}


def _key(source: Path | Product) -> str:
    if isinstance(source, Product):
        return source.name
    # A wheel has data/ inside the library; a product of a checkout is fresh there, too.
    folders = (REPOSITORY / "course_lib/data", "data"), (REPOSITORY, "")
    moved = (Path(name) / source.relative_to(folder) for folder, name in folders if source.is_relative_to(folder))
    return str(next(moved, source.name))


def _fingerprint(built: Manifest | None) -> str:
    """Return a single hash of the outputs in a manifest, which the manifests of products built from it record."""
    return sha256(json.dumps(built["outputs"] if built else None, sort_keys=True).encode()).hexdigest()


def _same_file(path: Path, size: int, mtime_ns: int, digest: str) -> bool:
    """Return whether a file is unchanged; it is read only if its modification time differs and its size does not."""
    if not path.exists() or path.stat().st_size != size:
        return False
    return path.stat().st_mtime_ns == mtime_ns or files.sha256(path) == digest

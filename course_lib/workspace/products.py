"""Products (corpora, tokenizers, models, …): what they are made of, their state, and how a missing one is built.

A product is a folder workspace/<profile>/<chapter>/<name>/ with a manifest.json (manifests.py). It is fresh if it was
made of what it would be made of now: the same identity, code (sources.py) and inputs. `products.WIKIPEDIA.path()`
returns the folder, building it first if necessary, so any notebook can be run without the earlier ones.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from course_lib import files
from course_lib.language.words import tr, tr_noop
from course_lib.paths import REPOSITORY

# `data` and `root` are part of this module's interface: workspace.data(…)
from course_lib.paths import data as data
from course_lib.paths import root as root
from course_lib.settings import config, profiles
from course_lib.workspace import manifests, sources
from course_lib.workspace.manifests import Manifest


@dataclass(frozen=True)
class State:
    """The state of a product, as shown by `course status`. The reason is in the reader's language."""

    kind: Literal["fresh", "stale", "missing"]
    reason: str = ""
    # manifests.outputs_digest of a fresh product
    outputs: str = field(default="", compare=False)


# The states that one look at products has found, by name: many products are made from the same ones.
Seen = dict[str, State]


def values(settings: Any) -> dict[str, Any]:
    """Return all settings as JSON values."""
    return settings if isinstance(settings, dict) else config.to_dict(settings)


@dataclass(frozen=True)
class Product:
    """A named output of the course, such as a corpus, a tokenizer or a model. Products of the same name are equal."""

    name: str  # "<chapter>/<product>"
    # (empty folder to fill, paths of the inputs, settings) → counts for the manifest
    build: Callable[[Path, list[Path], Any], dict[str, Any]] = field(compare=False)
    # a settings dataclass or JSON values, or a function that returns them
    settings: Any = field(default_factory=dict, compare=False)
    # files, or other products whose folders `build` receives, or a function that returns them
    inputs: "Callable[[], Sequence[Path | Product]] | Sequence[Path | Product]" = field(default=(), compare=False)
    # packages and modules of course_lib, or a function that returns them; other code makes the product stale
    code: Callable[[], tuple[str, ...]] | tuple[str, ...] = field(default=(), compare=False)
    # settings → those that fix the content, as JSON values; another value makes the product stale
    identity: Callable[[Any], dict[str, Any]] = field(default=values, compare=False)
    # (paths of the inputs, settings) → what is trained, such as "GPT-2, 2 layers"; "" if nothing is
    trains: Callable[[list[Path], Any], str] = field(default=lambda _inputs, _settings: "", compare=False)

    @property
    def folder(self) -> Path:
        """The path of the product folder, which may not exist yet."""
        return root() / self.name

    def path(self, seen: Seen | None = None) -> Path:
        """Return the folder, first building the product and its inputs if they are missing or stale."""
        seen = {} if seen is None else seen
        if self.state(seen).kind == "fresh":
            return self.folder
        settings, inputs = self.resolve()
        paths = [each.path(seen) if isinstance(each, Product) else files.require_file(each) for each in inputs]
        # If another process is building the product, wait here instead of building it again.
        with locked(self):
            del seen[self.name]
            state = self.state(seen)
            if state.kind == "fresh":
                return self.folder
            _announce(self, state, paths, settings)
            # What changes while the product is built makes it stale.
            manifest: Manifest = {
                "product": self.name,
                "profile": profiles.current_name(),
                "identity": self.identity(settings),
                "inputs": _record(inputs, seen),
                "versions": manifests.versions(),
            }
            with files.atomic_folder(self.folder, ours=True) as folder:
                started = time.perf_counter()
                manifest["counts"] = self.build(folder, paths, settings)
                manifest["seconds"] = round(time.perf_counter() - started, 2)
                manifest["built"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                manifest["outputs"] = manifests.outputs(folder)
                # After the build, so that a source that was edited meanwhile is noticed.
                manifest["code"] = sources.digests(self.modules())
                files.write_json(folder / manifests.FILE, manifest)
        seen[self.name] = State("fresh", outputs=manifests.outputs_digest(manifest))
        return self.folder

    def state(self, seen: Seen | None = None) -> State:
        """Return whether the product is fresh, stale or missing, without building anything."""
        seen = {} if seen is None else seen
        if self.name not in seen:
            manifest = self.manifest()
            state = self.compare(manifest, seen)
            if manifest and state.kind == "fresh" and (name := manifests.changed_output(self.folder, manifest)):
                state = State("stale", tr("{name} was changed or removed", name=name))
            seen[self.name] = state
        return seen[self.name]

    def compare(self, manifest: Manifest | None, seen: Seen) -> State:
        """Return the state of the product with this manifest: fresh if it would be made of the same now."""
        settings, inputs = self.resolve()
        if manifest is None:
            is_there = (self.folder / manifests.FILE).exists()
            return State("stale", tr("{name} is damaged", name=manifests.FILE)) if is_there else State("missing")
        if "identity" not in manifest:
            return State("stale", tr("built by an earlier version of the course"))
        if manifest["identity"] != self.identity(settings):
            return State("stale", tr("settings changed"))
        code = manifest.get("code", {})
        if name := sources.difference(self.modules(), code):
            if sources.is_unknown(code.get(name, "")):
                return State("stale", tr("the code of {code} was edited during the build", code=name))
            return State("stale", tr("the code of {code} changed", code=name))
        keyed = _keyed(inputs)
        if manifest["inputs"].keys() != keyed.keys():
            return State("stale", tr("made from other inputs"))
        for key, each in keyed.items():
            recorded = manifest["inputs"][key]
            if isinstance(each, Product):
                state = each.state(seen)
                if state.kind != "fresh":
                    return State("stale", tr("{name} is not fresh", name=each.name))
                is_same = recorded == state.outputs
            else:
                # What is a file now was a product then.
                is_same = isinstance(recorded, dict) and manifests.is_same_file(each, recorded)
            if not is_same:
                return State("stale", tr("{name} changed", name=key))
        return State("fresh", outputs=manifests.outputs_digest(manifest))

    def manifest(self) -> Manifest | None:
        """Return the manifest of the built product, or None if it is missing or invalid."""
        return manifests.read(self.folder)

    def resolve(self) -> "tuple[Any, tuple[Path | Product, ...]]":
        """Return the settings in the current profile as the dataclass or values that `build` gets, and the inputs."""
        settings = self.settings() if callable(self.settings) else self.settings
        return settings, tuple(self.inputs() if callable(self.inputs) else self.inputs)

    def modules(self) -> tuple[str, ...]:
        """Return the packages and modules whose code fixes the product in the current profile."""
        return self.code() if callable(self.code) else self.code

    def run_name(self) -> str:
        """Return a name for the run that trains the product: 12 hexadecimal digits of a digest of what it is made of.

        A run is resumed only for the same identity, code and inputs. The inputs must be built.
        """
        settings, inputs = self.resolve()
        recorded = _record(inputs, {})
        contents = {key: each if isinstance(each, str) else each["sha256"] for key, each in recorded.items()}
        made_of = [self.identity(settings), sources.digests(self.modules()), contents]
        return sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:12]


def states(products: Iterable[Product]) -> Seen:
    """Return the state of each product by name. Each product is examined once."""
    seen: Seen = {}
    return {product.name: product.state(seen) for product in products}


def with_inputs(products: Iterable[Product]) -> list[Product]:
    """Return products and all products that they are built from, directly or indirectly, inputs first."""
    found: dict[Product, None] = {}
    for product in products:
        inputs = with_inputs(source for source in product.resolve()[1] if isinstance(source, Product))
        found |= dict.fromkeys([*inputs, product])
    return list(found)


def size(name: str) -> int:
    """Return the size on disk of a product, or of all products in a chapter [bytes]."""
    return sum(path.stat().st_size for path in (root() / name).rglob("*") if path.is_file())


def locked(product: Product) -> FileLock:
    """Return the lock for writing a product: `with locked(product):` waits for other processes."""
    product.folder.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(lock_path(product.folder))


def lock_path(folder: Path) -> Path:
    """Return the path of the lock of a product's folder."""
    return folder.parent / f".{folder.name}.lock"


def _announce(product: Product, state: State, inputs: list[Path], settings: Any) -> None:
    """Print what is built and why, and which of its sources this process cannot build with."""
    for code in filter(sources.is_edited, product.modules()):
        message = tr_noop("{code} was edited after this process loaded it; restart the process (the kernel) to use it")
        print(tr(message, code=code), flush=True)
    reason, title = state.reason or tr("missing"), product.trains(inputs, settings)
    if title:
        print(tr("training {name} ({reason}): {title}", name=product.name, reason=reason, title=title), flush=True)
    else:
        print(tr("building {name} ({reason})", name=product.name, reason=reason), flush=True)


def _record(inputs: Sequence[Path | Product], seen: Seen) -> dict[str, Any]:
    """Return what a manifest records of the inputs, which are there: facts of files, digests of products."""
    recorded: dict[str, Any] = {}
    for key, each in _keyed(inputs).items():
        if isinstance(each, Product):
            recorded[key] = each.state(seen).outputs
        else:
            recorded[key] = {"mtime_ns": each.stat().st_mtime_ns} | manifests.facts(each)
    return recorded


def _keyed(inputs: Sequence[Path | Product]) -> dict[str, Path | Product]:
    """Return the inputs by the names that they have in a manifest; another file of the same name gets a number."""
    keyed: dict[str, Path | Product] = {}
    for each in inputs:
        key = name = _key(each)
        number = 1
        while key in keyed:
            number += 1
            key = f"{name} ({number})"
        keyed[key] = each
    return keyed


def _key(source: Path | Product) -> str:
    if isinstance(source, Product):
        return source.name
    # A wheel has data/ inside the library; a product of a checkout is fresh there, too.
    folders = (REPOSITORY / "course_lib/data", "data"), (REPOSITORY, "")
    moved = (Path(name) / source.relative_to(folder) for folder, name in folders if source.is_relative_to(folder))
    return str(next(moved, source.name))

"""Archives of finished products, for a learner who is behind: `course cache pack`, `course run N --from-cache FILE`.

An archive is a zip file. cache.json names the profile and the products, products/NAME/manifest.json is a product's
manifest, and files/SHA256.xz holds the content of an output, once for all products that have it. The folders of
training runs, with their checkpoints and optimizer states, are not products and are left out: a later chapter reads
the exported model.
"""

import json
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from course_lib import __version__, files
from course_lib.errors import CourseError
from course_lib.language.words import tr
from course_lib.settings import profiles
from course_lib.workspace import products as workspace
from course_lib.workspace.products import MANIFEST, Manifest, Product

HEADER = "cache.json"
FORMAT = 1
# Float weights, nine tenths of an archive, are smallest and quickest with level 0: 92.2 % of their size in 0.35 s/MB,
# against 92.5 % in 0.47 s/MB with level 6.
LEVEL = 0
AGAIN = "write it again with `course cache pack`"


@dataclass
class Packed:
    """What `pack` wrote."""

    products: list[str] = field(default_factory=list)
    # product → state, of products that were not finished
    left_out: dict[str, str] = field(default_factory=dict)
    # size of the products [bytes]
    size: int = 0


@dataclass
class Unpacked:
    """What `unpack` did."""

    products: list[str] = field(default_factory=list)
    # product → reason, of products that the archive holds and the workspace keeps or must build
    kept: dict[str, str] = field(default_factory=dict)
    # products that the archive does not hold
    absent: list[str] = field(default_factory=list)
    # size of the unpacked products [bytes]
    size: int = 0


def pack(products: Sequence[Product], target: Path) -> Packed:
    """Write the fresh ones among `products` into an archive. The same products give the same bytes.

    Raises:
        CourseError: if no product is fresh, or if a file differs from its product's manifest. `target` is unchanged.
    """
    files.require_replaceable(target)
    states = workspace.states(products)
    manifests = {p.name: p.manifest() for p in products if states[p.name].kind == "fresh"}
    done = Packed(list(manifests), {name: state.kind for name, state in states.items() if name not in manifests})
    if not manifests:
        raise CourseError(f"{workspace.root()}: holds no finished product; run `course run all` first")
    header = {"format": FORMAT, "course": __version__, "profile": profiles.name(), "products": done.products}
    with files.atomic_write(target) as file, ZipFile(file, "w") as archive:
        archive.writestr(_member(HEADER), json.dumps(header, indent=1) + "\n")
        written: set[str] = set()
        for product in (product for product in products if product.name in manifests):
            manifest = manifests[product.name]
            assert manifest is not None
            archive.writestr(_member(_manifest_name(product.name)), (product.folder / MANIFEST).read_bytes())
            for name, facts in manifest["outputs"].items():
                done.size += facts["bytes"]
                if facts["sha256"] not in written:
                    written.add(facts["sha256"])
                    _pack_file(archive, product.folder / name, facts)
    return done


def unpack(wanted: Sequence[Product], source: Path) -> Unpacked:
    """Put products of an archive into the workspace, each with its manifest.

    A product that is fresh, or newer than the archive's, is kept. So is one whose archived form was made from other
    inputs than those in the workspace. Everything is read and verified before anything is written.

    Args:
        wanted: the products to unpack and all their inputs, inputs first (`workspace.with_inputs`).
        source: an archive written by `pack` in the same profile with the same code and settings.

    Raises:
        CourseError: if the archive is damaged, truncated, of another kind or profile, or if one of the wanted products
            would be stale. Nothing is unpacked then.
    """
    files.require_file(source)
    try:
        with ZipFile(source) as archive:
            manifests = _manifests(archive, source)
            _require_fresh(wanted, manifests, source)
            with files.work_folder(workspace.root() / "cache") as folder:
                return _place(wanted, manifests, archive, folder)
    except (BadZipFile, EOFError, lzma.LZMAError, zlib.error, KeyError, _Damaged) as error:
        problem = (str(error.args[0]) if error.args else "") or "it is cut short"
        raise CourseError(f"{source}: is not a complete archive of products: {problem}; {AGAIN}") from error


class _Damaged(Exception):
    """The content of an archive is not what its manifests say."""


def _place(wanted: Sequence[Product], manifests: dict[str, Manifest], archive: ZipFile, folder: Path) -> Unpacked:
    """Extract what the workspace lacks into an empty folder, then move it to its place."""
    done = Unpacked(absent=[product.name for product in wanted if product.name not in manifests])
    chosen = []
    snapshot = workspace.Snapshot()
    for product in (product for product in wanted if product.name in manifests):
        if reason := _reason_to_keep(product, manifests[product.name]):
            done.kept[product.name] = reason
        elif (state := snapshot.assume(product, manifests[product.name])).kind == "fresh":
            chosen.append(product)
        else:
            done.kept[product.name] = state.reason
    for product in chosen:
        _extract(archive, product.name, manifests[product.name], folder / product.name)
    for product in chosen:
        with workspace.locked(product):
            if reason := _reason_to_keep(product, manifests[product.name]):
                done.kept[product.name] = reason
                continue
            with files.atomic_folder(product.folder, ours=True) as new:
                for path in (folder / product.name).iterdir():
                    path.rename(new / path.name)
        done.products.append(product.name)
        done.size += sum(facts["bytes"] for facts in manifests[product.name]["outputs"].values())
    return done


def _reason_to_keep(product: Product, archived: Manifest) -> str:
    """Return why the workspace's product is kept, or "" if it is missing, or stale and older than the archive's."""
    if product.state().kind == "fresh":
        return tr("finished here")
    own = product.manifest()
    return tr("newer here") if own and own.get("built", "") > archived.get("built", "") else ""


def _require_fresh(wanted: Sequence[Product], manifests: dict[str, Manifest], source: Path) -> None:
    """Raise CourseError if a wanted product would be stale, were the archive all that is in the workspace."""
    snapshot = workspace.Snapshot()
    states = {p.name: snapshot.assume(p, manifests[p.name]) for p in wanted if p.name in manifests}
    stale = {name: state.reason for name, state in states.items() if state.kind != "fresh"}
    if stale:
        named = ", ".join(f"{name} ({reason})" for name, reason in stale.items())
        raise CourseError(f"{source}: these products would be stale with this version of the course: {named}; {AGAIN}")


def _manifests(archive: ZipFile, source: Path) -> dict[str, Manifest]:
    """Return the manifests in an archive by product, after checking profile and file names."""
    try:
        header = json.loads(archive.read(HEADER))
        if header.get("format") != FORMAT:
            raise _Damaged(f"{HEADER} has format {header.get('format')!r}, expected {FORMAT}")
        found = {name: json.loads(archive.read(_manifest_name(name))) for name in header["products"]}
        for name, manifest in found.items():
            if not manifest.keys() >= {"settings", "inputs", "outputs"}:
                raise _Damaged(f"the manifest of {name} is damaged")
            for output, facts in manifest["outputs"].items():
                _require_inside(name, output)
                if not isinstance(facts["bytes"], int) or not isinstance(facts["sha256"], str):
                    raise _Damaged(f"the manifest of {name} is damaged")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _Damaged(f"{HEADER} or a manifest is damaged") from error
    if header["profile"] != profiles.name():
        raise CourseError(
            f"{source}: holds products of the profile {header['profile']!r}, but the current profile is"
            f" {profiles.name()!r}; set {profiles.VARIABLE}, or use an archive of this profile"
        )
    return found


def _require_inside(name: str, output: str) -> None:
    path = PurePosixPath(output)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in output:
        raise _Damaged(f"{name} has a file outside its folder: {output!r}")


def _extract(archive: ZipFile, name: str, manifest: Manifest, folder: Path) -> None:
    """Write a product into a new folder. Raises _Damaged if a file is not the one in the manifest."""
    folder.mkdir(parents=True)
    for output, facts in manifest["outputs"].items():
        path = folder / output
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            archive.open(_content_name(facts["sha256"])) as packed,
            lzma.open(packed) as content,
            path.open("xb") as new,
        ):
            digest, size = sha256(), 0
            while block := content.read(files.CHUNK):
                new.write(block)
                digest.update(block)
                size += len(block)
                if size > facts["bytes"]:
                    break
        if (size, digest.hexdigest()) != (facts["bytes"], facts["sha256"]):
            raise _Damaged(f"{name}/{output} is not the file of its manifest")
    (folder / MANIFEST).write_bytes(archive.read(_manifest_name(name)))


def _pack_file(archive: ZipFile, path: Path, facts: dict[str, Any]) -> None:
    """Compress a file into the archive. Raises CourseError if it is not the file of the manifest."""
    info = _member(_content_name(facts["sha256"]), ZIP_STORED)
    digest = sha256()
    stored = archive.open(info, "w", force_zip64=facts["bytes"] > 1 << 30)
    with path.open("rb") as file, stored, lzma.open(stored, "wb", preset=LEVEL) as packed:
        while block := file.read(files.CHUNK):
            packed.write(block)
            digest.update(block)
    if digest.hexdigest() != facts["sha256"]:
        chapter = path.relative_to(workspace.root()).parts[0]
        raise CourseError(
            f"{path}: was changed after it was built; run `course clean {chapter}` and `course run {chapter}`"
        )


def _member(name: str, compression: int = ZIP_DEFLATED) -> ZipInfo:
    """Return an entry of an archive with a fixed date and mode, so that equal products give equal bytes."""
    info = ZipInfo(name)
    info.compress_type = compression
    info.create_system, info.external_attr = 3, 0o644 << 16
    return info


def _manifest_name(product: str) -> str:
    return f"products/{product}/{MANIFEST}"


def _content_name(digest: str) -> str:
    return f"files/{digest}.xz"

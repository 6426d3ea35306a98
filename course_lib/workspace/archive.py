"""Archives of finished products, for a learner who is behind: `course cache pack`, `course run N --from-cache FILE`.

An archive is a zip file of product folders with their manifests, without the folders of training runs.
"""

import lzma
import os
import shutil
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_LZMA, BadZipFile, ZipFile, ZipInfo

from course_lib import files
from course_lib.errors import CourseError
from course_lib.language.words import tr, tr_noop
from course_lib.workspace import manifests
from course_lib.workspace import products as workspace
from course_lib.workspace.manifests import Manifest
from course_lib.workspace.products import Product, Seen

# What was packed or unpacked: the size of each product [bytes]; and what was left alone, with the reason.
Done = tuple[dict[str, int], dict[str, str]]


def pack(products: Sequence[Product], target: Path) -> Done:
    """Write the fresh ones among `products` into an archive. The same products give the same bytes."""
    states = workspace.states(products)
    left = {name: tr(state.kind) for name, state in states.items() if state.kind != "fresh"}
    packed = dict[str, int]()
    if len(left) == len(states):
        raise CourseError(tr("{path}: holds no finished product; run `course run all` first", path=workspace.root()))
    for product in products:
        files.require_other(product.folder, target)
    fresh = [product for product in products if product.name not in left]
    with files.atomic_write(target) as file, ZipFile(file, "w") as archive:
        for product in fresh:
            outputs = (product.manifest() or {})["outputs"]
            for name in (manifests.FILE, *outputs):
                path = product.folder / name
                if name != manifests.FILE and files.sha256(path) != outputs[name]["sha256"]:
                    raise CourseError(tr("{path}: was changed after it was built; build it again", path=path))
                # A fixed date and mode, so that equal products give equal bytes.
                entry = ZipInfo(f"{product.name}/{name}")
                entry.compress_type, entry.external_attr = ZIP_LZMA, 0o644 << 16
                with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as member:
                    shutil.copyfileobj(source, member, files.CHUNK)
            packed[product.name] = _size(outputs)
    return packed, left


def unpack(wanted: Sequence[Product], source: Path) -> Done:
    """Put products of an archive into the workspace, each with its manifest; verify all of them before writing.

    A product that is fresh stays, and so does one whose archived form would be stale here. `wanted` has the products to
    unpack and all their inputs, inputs first (`workspace.with_inputs`).
    """
    files.require_file(source)
    with files.work_folder(workspace.root() / "cache") as folder:
        try:
            with ZipFile(source) as archive:
                packed = [each for each in wanted if f"{each.name}/{manifests.FILE}" in archive.namelist()]
                for name in archive.namelist():
                    if name.startswith(tuple(f"{product.name}/" for product in packed)):
                        archive.extract(name, folder)
        except (BadZipFile, EOFError, OSError, lzma.LZMAError, zlib.error, NotImplementedError) as error:
            raise CourseError(tr("{path}: is not a complete archive: {error}", path=source, error=error)) from error
        verified = {product: _verified(folder / product.name, source) for product in packed}
        left = {each.name: tr("not in the archive") for each in wanted if each not in packed}
        unpacked, seen = dict[str, int](), Seen()
        for product, manifest in verified.items():
            if product.state(seen).kind == "fresh":
                left[product.name] = tr("finished here")
                continue
            state = product.compare(manifest, seen)
            if state.kind != "fresh":
                left[product.name] = state.reason
                continue
            with workspace.locked(product), files.atomic_folder(product.folder, ours=True) as new:
                for path in (folder / product.name).iterdir():
                    path.rename(new / path.name)
                # Outputs that are newer than their manifest would be read at each look.
                now = time.time_ns()
                os.utime(new / manifests.FILE, ns=(now, now))
            seen[product.name] = state
            unpacked[product.name] = _size(manifest["outputs"])
    return unpacked, left


def _size(outputs: dict[str, dict[str, int]]) -> int:
    return sum(facts["bytes"] for facts in outputs.values())


def _verified(folder: Path, source: Path) -> Manifest:
    """Return the manifest of an extracted product, after comparing its files."""
    manifest = manifests.read(folder)
    if manifest is None or any(
        not (folder / name).is_file() or files.sha256(folder / name) != facts["sha256"]
        for name, facts in manifest["outputs"].items()
    ):
        message = tr_noop("{path}: is not a complete archive: {name} differs from its manifest")
        raise CourseError(tr(message, path=source, name=folder.name))
    return manifest

"""Files of a distributed run on any file system of fsspec: local, s3://, hf://.

A file appears whole or not at all: local files are renamed, and remote objects appear when their upload is complete.
A unit of work, such as a shard, is done when its marker exists, which is written after its files and lists their sizes.
The chapters' functions work on local paths, so a remote file is copied to this machine for as long as it is read.
"""

import hashlib
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import orjson
from datatrove.io import DataFolder, get_datafolder

from course_lib.errors import CourseError, one_line
from course_lib.files import atomic_write, temporary_folder, user_folder, work_folder


class Store:
    """The folder of a run."""

    def __init__(self, url: str) -> None:
        try:
            self.folder: DataFolder = get_datafolder(url)
        except (ImportError, ValueError) as error:
            raise CourseError(f"output: {url}: {error}") from None
        self.local = bool(self.folder.is_local())

    def url(self, name: str) -> str:
        """Return the full path or address of a file."""
        return str(self.folder.resolve_paths(name))

    @contextmanager
    def _reached(self, name: str) -> Iterator[None]:
        """Turn what a remote file system raises in the block into a CourseError: each one has errors of its own."""
        try:
            yield
        except (CourseError, FileNotFoundError):
            raise
        except Exception as error:
            if self.local:
                raise
            reason = one_line(error) or type(error).__name__
            raise CourseError(f"{self.url(name)}: cannot be reached, or is not allowed: {reason}") from error

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size of each file below a folder, in the order of the names."""
        self.folder.invalidate_cache()
        try:
            with self._reached(prefix):
                found = self.folder.find(prefix, detail=True)
        except FileNotFoundError:
            return {}
        hidden = (name for name in found if "/." not in f"/{name}")
        return {name: int(found[name]["size"] or 0) for name in sorted(hidden)}

    def others(self) -> list[str]:
        """Return what is in the folder itself, without hidden files, sorted by name."""
        if self.local:
            folder = Path(self.url(""))
            found = list(map(str, folder.iterdir())) if folder.is_dir() else []
        else:
            with self._reached(""):
                found = self.folder.ls("", detail=False) if self.folder.exists("") else []
        return sorted(name for name in (Path(each).name for each in found) if not name.startswith("."))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._reached(name):
            return bytes(self.folder.cat_file(name))

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file. Raises CourseError if it holds anything else."""
        try:
            content = orjson.loads(self.read(name))
        except ValueError as error:
            raise CourseError(f"{self.url(name)}: not readable as JSON: {error}") from None
        if not isinstance(content, dict):
            raise CourseError(f"{self.url(name)}: expected a JSON object, found {str(content)[:40]}")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        if not self.local:
            with self._reached(name):
                self.folder.pipe_file(name, content)
            return
        path = Path(self.url(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(content)

    def publish(self, folder: Path, stage: str) -> dict[str, int]:
        """Move all files in a folder into that of a stage, and return their sizes by their names in the store."""
        sizes = {}
        # Not the list of a product folder's files (files.FILE_LIST): hidden files are no part of the store.
        shown = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        for path in sorted(shown):
            name = f"{stage}/{path.relative_to(folder)}"
            sizes[name] = path.stat().st_size
            if self.local:
                target = Path(self.url(name))
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
            else:
                with self._reached(name):
                    self.folder.put_file(str(path), name)
                path.unlink()
        return sizes

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError), self._reached(name):
            self.folder.rm_file(name)

    @contextmanager
    def reading(self, *names: str) -> Iterator[list[Path]]:
        """Yield local paths, in one folder, with the contents of files of one folder."""
        if self.local:
            yield [Path(self.url(name)) for name in names]
            return
        with temporary_folder("course-scale-input") as folder:
            paths = [folder / Path(name).name for name in names]
            for name, path in zip(names, paths, strict=True):
                with self._reached(name):
                    self.folder.get_file(name, str(path))
            yield paths

    def cached(self, name: str) -> Path:
        """Return a local path of a file that many tasks of this machine read; a copy's name depends on its version."""
        if self.local:
            return Path(self.url(name))
        self.folder.invalidate_cache()
        with self._reached(name):
            version = f"{self.url(name)} {self.folder.ukey(name)}"
        key = hashlib.blake2b(version.encode(), digest_size=8).hexdigest()
        path = user_folder("course-scale-cache") / key / Path(name).name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file, self._reached(name), self.folder.open(name, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
        return path

    def done(self, stage: str) -> dict[str, int]:
        """Return the units of a stage that are done, with the size of each marker."""
        return {Path(name).stem: size for name, size in self.sizes(f"{stage}/done").items()}

    def marker(self, stage: str, unit: str) -> dict[str, Any]:
        """Return what is noted about a unit that is done. Raises CourseError if it is not done."""
        try:
            note = self.json(f"{stage}/done/{unit}.json")
        except FileNotFoundError:
            raise CourseError(f"{self.url(stage)}: unit {unit} is not done; run the stage {stage} first") from None
        return note

    def make(self, stage: str, unit: str, work: Callable[[Path], dict[str, Any] | None]) -> None:
        """Run the work of a unit, put the files that it writes into a folder into the store, then its marker."""
        base = Path(self.url(stage)) if self.local else user_folder(f"course-scale-{stage}")
        started, worked = perf_counter(), process_time()
        with work_folder(base / unit) as folder:
            note = work(folder) or {}
            note["files"] = note.get("files", {}) | self.publish(folder, stage)
        # Of this process, which may have worked on other units before [kB on Linux].
        note["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        note |= {"seconds": perf_counter() - started, "core_seconds": process_time() - worked}
        self.write(f"{stage}/done/{unit}.json", orjson.dumps(note))

    def broken(self, stage: str) -> list[str]:
        """Return the units with a marker of which a file is missing or has another size."""
        sizes = self.sizes(stage)
        units = [Path(name).stem for name in sizes if name.startswith(f"{stage}/done/")]
        return [unit for unit in units if not self.marker(stage, unit)["files"].items() <= sizes.items()]

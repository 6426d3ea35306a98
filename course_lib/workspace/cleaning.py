"""What `course clean` removes: what the course wrote for a chapter's products, and training runs if asked.

Files that no manifest lists, or that were changed after they were built, belong to the user and stay. So does what is
outside the workspace, also behind a link, and what a running command uses.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_lib import files
from course_lib.paths import root
from course_lib.workspace import manifests
from course_lib.workspace.products import lock_path

# A folder in the workspace of a chapter that holds training runs, and the names that the course gives to runs.
RUNS = "runs"
RUN = re.compile(r"[0-9a-f]{12}")
# The name of a run's checkpoint. Others, such as checkpoint-best, are copies that the user made.
CHECKPOINT = re.compile("checkpoint-[0-9]+", re.ASCII)
# Locks of products, and the temporary files and folders of builds.
LOCK, TEMPORARY = re.compile(r"\.(.+)\.lock"), re.compile(r"\.+.+(\.[0-9a-f]{8}\.tmp)+")
# The lock of a run, in its folder.
OF_RUN = ".lock"


@dataclass
class Removal:
    """What would be removed, and what stays."""

    # product or run → size [bytes], seconds that it took to build
    parts: dict[str, tuple[int, float]] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    # the user's files, and the folder of training runs if they are not removed
    stays: list[Path] = field(default_factory=list)
    # what a running command uses
    used: list[Path] = field(default_factory=list)
    # path → the lock that a command holds while it uses the path
    locks: dict[Path, Path] = field(default_factory=dict)

    def add(self, path: Path, written: list[Path], lock: Path, seconds: float = 0.0) -> None:
        """Note a product or run, the files and folders of it that are removed, and what it took to build."""
        if files.is_locked(lock):
            self.used.append(path)
            return
        size = sum(file.stat().st_size for each in written for file in files_in(each))
        self.parts[str(path.relative_to(root()))] = size, seconds
        self._note(written, lock)

    def add_leftover(self, path: Path, lock: Path) -> None:
        """Note a lock or a temporary file or folder."""
        if files.is_locked(lock):
            self.used.append(path)
        else:
            self._note([path], lock)

    def _note(self, paths: list[Path], lock: Path) -> None:
        self.paths.extend(paths)
        self.locks |= dict.fromkeys(paths, lock)

    def remove(self) -> None:
        """Remove the files and runs, then the folders that are empty."""
        for path in self.paths:
            # A command may have started since the paths were noted.
            if files.is_locked(self.locks[path]):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
                continue
            path.unlink(missing_ok=True)
            folder = path.parent
            while folder != root() and not any(folder.iterdir()):
                folder.rmdir()
                folder = folder.parent


def removal(chapters: Sequence[str], runs: bool = False) -> Removal:
    """Return what cleaning these chapters removes; with `runs`, also their training runs. Nothing is removed yet."""
    found = Removal()
    paths = [path for name in chapters for path in sorted((root() / name).glob("*"))]
    for path in paths:
        if not _inside(path, root()):
            found.stays.append(path)
        elif path.name == RUNS and path.is_dir() and runs:
            for run in sorted(path.iterdir()):
                if RUN.fullmatch(run.name) and _inside(run, root()):
                    copies = [each for each in run.glob("checkpoints/*") if not CHECKPOINT.fullmatch(each.name)]
                    users = {file for each in copies for file in files_in(each)}
                    written = [file for file in files_in(run) if file not in users] if users else [run]
                    found.add(run, written, run / OF_RUN)
                    found.stays += copies
                else:
                    found.stays.append(run)
        elif path.is_dir() and (manifest := manifests.read(path)):
            written = [path / name for name in (manifests.FILE, files.FILE_LIST) if (path / name).is_file()]
            for name, facts in manifest["outputs"].items():
                if _inside(path / name, path) and manifests.is_as_built(path, name, facts):
                    written.append(path / name)
            found.add(path, written, lock_path(path), manifest.get("seconds", 0.0))
            found.stays += sorted(set(files_in(path)) - set(written))
        elif LOCK.fullmatch(path.name) and path.stat().st_size == 0:
            found.add_leftover(path, path)
        elif TEMPORARY.fullmatch(path.name):
            # what killed builds left
            found.add_leftover(path, path)
        else:
            found.stays.append(path)
    return found


def files_in(path: Path) -> Iterator[Path]:
    """Yield a file, or the files in a folder."""
    return (each for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())


def _inside(path: Path, folder: Path) -> bool:
    """Return whether a path leads to something inside a folder."""
    return files.behind_links(path).is_relative_to(files.behind_links(folder))

"""A new profile for a learner's own text: a folder with the texts, the profile and the settings of its GPT-2."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.corpus.config import FilterConfig
from course_lib.corpus.products import require_text
from course_lib.documents import read_texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder
from course_lib.settings import profiles

TEMPLATES = profiles.CONFIGS / "new"


@dataclass(frozen=True)
class NewProfile:
    """What `create` wrote: the profile's path and the contents of the texts."""

    profile: Path
    documents: int
    characters: int
    short: int  # documents that chapter 1 will remove because they are shorter than filters.min_chars


def create(folder: Path, texts: Sequence[Path], like: str = profiles.BUNDLED[0]) -> NewProfile:
    """Create a folder with a profile, the settings of its GPT-2, and copies of the texts.

    Args:
        folder: the new folder; its name becomes the name of the profile.
        texts: .txt or .jsonl files, plain or compressed.
        like: the bundled profile that the new one extends.
    """
    name, shortest = folder.absolute().name, FilterConfig().min_chars
    if like not in profiles.BUNDLED:
        raise UsageError(f"--like: {like!r} is not a bundled profile; allowed: {', '.join(profiles.BUNDLED)}")
    if folder.exists() or name in profiles.BUNDLED:
        raise UsageError(f"{folder}: exists, or is the name of a bundled profile; choose another name")
    same = [name for name, number in Counter(path.name for path in texts).items() if number > 1]
    if same:
        raise UsageError(f"{same[0]}: two texts have the same name; rename one")
    lengths: list[int] = []
    for path in texts:
        require_text(path)
        found = [len("".join(text.split())) for text in read_texts(path)]
        if not found:
            raise CourseError(f"{path}: no document in it")
        lengths += found
    values = {"like": like, "shortest": shortest}
    values |= {"config": profiles.read_yaml(profiles.file(like))["pretrain"]["recipe"]["config"]}
    with atomic_folder(folder) as work_folder:
        (work_folder / "texts").mkdir()
        for path in texts:
            shutil.copyfile(path, work_folder / "texts" / path.name)
        for template, target in (("profile.yaml", f"{name}.yaml"), ("gpt2.yaml", "gpt2.yaml")):
            text = (TEMPLATES / template).read_text(encoding="utf8").format(**values)
            (work_folder / target).write_text(text, encoding="utf8")
    return NewProfile(folder / f"{name}.yaml", len(lengths), sum(lengths), sum(length < shortest for length in lengths))

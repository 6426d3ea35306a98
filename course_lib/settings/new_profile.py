"""A new profile for a learner's own text: a folder with the texts, the profile and the settings of its GPT-2."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.corpus.config import FilterConfig
from course_lib.corpus.products import require_text
from course_lib.documents import read_texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder
from course_lib.settings import profiles

SHORTEST = FilterConfig().min_chars
PROFILE = """\
# A profile for your own text, which COURSE_PROFILE names by its path.
# `course profile show` prints what it sets and what it costs. Paths are relative to this file's folder.
extends: {like}
corpus:
  sources:
    # Files in texts/: .txt with an empty line between documents, or .jsonl with "text"; plain, .gz, .bz2 or .xz.
    webtext: files
    files: [texts/*]
    # Your texts take the place of the web text. The encyclopedia stays: `bundled` is the course's sample of 0.7 MB,
    # `download` the real Japanese Wikipedia.
    wikipedia: bundled
  # Documents with fewer characters are removed, as are duplicates. All settings: course corpus webtext --help
  webtext: {{filters: {{min_chars: {shortest}}}}}
pretrain:
  recipe: {{config: gpt2.yaml}}
"""
RUN = """\
# The GPT-2 of chapter 4 for this profile. All settings: course pretrain --help
extends: {config}
# engine: {{max_steps: 500}}
"""


@dataclass(frozen=True)
class Created:
    """What `create` wrote: the profile's path and the contents of the texts."""

    profile: Path
    documents: int
    characters: int
    short: int  # documents that chapter 1 will remove because they are shorter than filters.min_chars


def create(folder: Path, texts: Sequence[Path], like: str = profiles.BUNDLED[0]) -> Created:
    """Create a folder with a profile, the settings of its GPT-2, and copies of the texts.

    Writes nothing if it raises.

    Args:
        folder: the new folder; its name becomes the name of the profile.
        texts: .txt or .jsonl files, plain or compressed.
        like: the bundled profile that the new one extends.

    Raises:
        UsageError: if the folder exists, its name is that of a bundled profile, `like` is not a bundled profile, a
            file is neither .txt nor .jsonl, or two files have the same name.
        CourseError: if a text cannot be read or has no document.
    """
    name = folder.absolute().name
    if name in profiles.BUNDLED:
        raise UsageError(f"{folder}: {name} is a bundled profile; choose another name")
    if like not in profiles.BUNDLED:
        raise UsageError(f"--like: {like!r} is not a bundled profile; allowed: {', '.join(profiles.BUNDLED)}")
    if folder.exists():
        raise UsageError(f"{folder}: exists; choose another name")
    lengths: list[int] = []
    for number, path in enumerate(texts):
        require_text(path)
        found = [len("".join(text.split())) for text in read_texts(path)]
        if not found:
            raise CourseError(f"{path}: no document in it")
        lengths += found
        same = next((other for other in texts[:number] if other.name == path.name), None)
        if same:
            raise UsageError(f"{same} and {path} have the same name; rename one")
    recipe = profiles.read_yaml(profiles.file(like))["pretrain"]["recipe"]
    with atomic_folder(folder) as work_folder:
        (work_folder / "texts").mkdir()
        for path in texts:
            shutil.copyfile(path, work_folder / "texts" / path.name)
        (work_folder / f"{name}.yaml").write_text(PROFILE.format(like=like, shortest=SHORTEST), encoding="utf8")
        (work_folder / "gpt2.yaml").write_text(RUN.format(config=recipe["config"]), encoding="utf8")
    return Created(folder / f"{name}.yaml", len(lengths), sum(lengths), sum(length < SHORTEST for length in lengths))

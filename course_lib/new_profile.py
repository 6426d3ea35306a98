"""A new profile for a learner's own text: a folder with the texts, the profile and the settings of its GPT-2."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib import profiles
from course_lib.documents import read_texts
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, inner_suffix

PROFILE = """\
# A profile for your own text: COURSE_PROFILE={name}/{name}.yaml
# `course profile show` prints what it sets and what it costs. Paths are relative to this file.
extends: {like}
corpus:
  sources:
    # Files in texts/: .txt with an empty line between documents, or .jsonl with "text"; plain, .gz, .bz2 or .xz.
    webtext: files
    files: [texts/*]
    # `bundled` adds the course's sample encyclopedia (0.7 MB), `download` the real Japanese Wikipedia.
    wikipedia: bundled
  # What is kept of your texts. All settings: course corpus webtext --help
  webtext: {{filters: {{min_chars: 80}}}}
pretrain:
  recipe: {{config: gpt2.yaml}}
"""
RUN = """\
# The GPT-2 of chapter 4 for this profile. All settings: course pretrain --help
extends: {config}
engine: {{output_dir: output/{name}}}
"""


@dataclass(frozen=True)
class Created:
    """What `create` wrote: the profile's path, and the number of documents and characters in the texts."""

    profile: Path
    documents: int
    characters: int


def create(folder: Path, texts: Sequence[Path], like: str = profiles.BUNDLED[0]) -> Created:
    """Create a folder with a profile, the settings of its GPT-2, and copies of the texts.

    Nothing is written if anything is wrong.

    Args:
        folder: the new folder; its name becomes the name of the profile.
        texts: .txt or .jsonl files, plain or compressed.
        like: the bundled profile that the new one extends.

    Raises:
        UsageError: if the folder exists, its name is that of a bundled profile, `like` is no bundled profile, or a
            file is of another kind or has the name of another one.
        CourseError: if a text cannot be read or has no document.
    """
    name = folder.absolute().name
    if name in profiles.BUNDLED:
        raise UsageError(f"{folder}: {name} is a bundled profile; choose another name")
    if like not in profiles.BUNDLED:
        raise UsageError(f"--like: {like!r} is not allowed: one of {', '.join(profiles.BUNDLED)}")
    if folder.exists():
        raise UsageError(f"{folder}: exists; choose another name")
    documents = characters = 0
    for path in texts:
        if inner_suffix(path) not in (".txt", ".jsonl"):
            raise UsageError(f"{path}: is neither .txt nor .jsonl, plain or compressed (.gz, .bz2, .xz)")
        lengths = [len(text) for text in read_texts(path)]
        if not lengths:
            raise CourseError(f"{path}: no document in it")
        documents, characters = documents + len(lengths), characters + sum(lengths)
    if len({path.name for path in texts}) < len(texts):
        raise UsageError("two of the files have the same name; rename one")
    recipe = profiles.read_yaml(profiles.file(like))["pretrain"]["recipe"]
    with atomic_folder(folder) as work_folder:
        (work_folder / "texts").mkdir()
        for path in texts:
            shutil.copyfile(path, work_folder / "texts" / path.name)
        (work_folder / f"{name}.yaml").write_text(PROFILE.format(name=name, like=like), encoding="utf8")
        (work_folder / "gpt2.yaml").write_text(RUN.format(name=name, config=recipe["config"]), encoding="utf8")
    return Created(folder / f"{name}.yaml", documents, characters)

"""Bundled documents that no tokenizer and no base model of the course is trained on."""

from course_lib import paths
from course_lib.documents import read_texts


def unseen_texts() -> list[str]:
    """Return match reports, recipes, tales and weather reports as raw documents: 192 texts with 44,278 characters.

    They are in data/classified. Chapter 5 trains only its extra stage on them.
    """
    files = sorted(paths.data("classified/list.csv").parent.glob("*/*.txt"))
    return ["\n".join(read_texts(file)) for file in files]

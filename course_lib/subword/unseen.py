"""Bundled documents that no tokenizer and no base model of the course is trained on."""

from course_lib import paths
from course_lib.documents import read_texts


def unseen_texts() -> list[str]:
    """Return 192 match reports, recipes, tales and weather reports with 44,278 characters, in data/classified."""
    files = sorted(paths.data("classified/list.csv").parent.glob("*/*.txt"))
    return ["\n".join(read_texts(file)) for file in files]

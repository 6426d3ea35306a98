"""`python -m tests.rehearsal.part NOTEBOOK …`: all products of the current profile, and the named notebooks.

A notebook is named by its file without the ending.
"""

import sys
from itertools import compress

from course_lib.workspace import chapters


def main(notebooks: list[str]) -> None:
    """Build and execute what `course run all --notebooks` would, but for the other notebooks."""
    for chapter in chapters.CHAPTERS:
        chosen = [path.stem in notebooks for path in chapter.paths]
        for product in (*chapter.products(), *compress(chapter.executed(), chosen)):
            product.path()


if __name__ == "__main__":
    main(sys.argv[1:])

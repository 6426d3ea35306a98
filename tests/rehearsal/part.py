"""`python -m tests.rehearsal.part NOTEBOOK …`: all products of the current profile, and the named notebooks.

A notebook is named by its file without the ending.
"""

import sys

from course_lib.workspace import chapters


def main(notebooks: list[str]) -> None:
    """Build and execute what `course run all` would, but for the other notebooks."""
    chosen = {
        f"{chapter.package}/{'notebook' if path == chapter.paths[-1] else path.stem}": path.stem in notebooks
        for chapter in chapters.CHAPTERS
        for path in chapter.paths
    }
    for product in chapters.products():
        if chosen.get(product.name, True):
            product.path()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The course's versions of functions and classes: their only source is the folded cells of the notebooks."""

import json
import re

from course_lib import paths
from course_lib.language.words import language

# The explanation of a solution whose code the learner finds in the notebook, or its first sentence.
SEE_FOLDED_CELL = "The folded cell below the exercise has the code."


class Code(str):
    """A solution that is Python code, printed as it is; it may need names of the notebook."""


def from_notebook(notebook: str, name: str) -> Code:
    """Return the code of the folded cell that defines a function or class, without its title and its last statement.

    The notebook is that in the reader's language. Without a checkout, such as on Colab, no notebook is at hand: then
    the code is the name alone.
    """
    file = f"{notebook}.ipynb"
    for path in (paths.NOTEBOOKS / language() / file, paths.NOTEBOOKS / file):
        if path.is_file():
            cells = json.loads(path.read_text(encoding="utf8"))["cells"]
            for source in ("".join(cell["source"]) for cell in cells):
                if re.search(rf"^(def|class) {name}\b", source, re.MULTILINE):
                    _title, _, code = source.partition("\n")
                    return Code(re.sub(r"\n+\w+ = exercises\.choose\(.*\)$", "", code))
    return Code(name)

"""The course's versions from a notebook's folded cells, as they are or with a mistake."""

from types import SimpleNamespace
from typing import Any

import nbformat
from course_lib.exercises import from_notebook
from course_lib.paths import NOTEBOOKS

from tests.notebooks.blanks import is_blank, is_folded


class Folded:
    """The folded cells and the blanks of a notebook, run with the course's versions chosen."""

    def __init__(self, notebook: str, **names: Any) -> None:
        self.notebook = notebook
        exercises = SimpleNamespace(check=lambda *answer: None, choose=lambda number, yours, ours: ours)
        self.names: dict[str, Any] = {"exercises": exercises, **names}
        for cell in nbformat.read(NOTEBOOKS / f"{notebook}.ipynb", as_version=4).cells:
            if cell.cell_type == "code" and (is_folded(cell) or is_blank(cell)):
                exec(cell.source.replace("as exercises", "as real"), self.names)

    def changed(self, name: str, *edits: tuple[str, str]) -> Any:
        """Return a course's version with a mistake: its source with some text replaced."""
        source = str(from_notebook(self.notebook, name))
        for before, after in edits:
            assert before in source, (name, before)
            source = source.replace(before, after)
        names = dict(self.names)
        exec(source, names)
        return names[name]

"""The course's versions from a notebook's folded cells, as they are or with a mistake."""

import re
from types import SimpleNamespace
from typing import Any

import nbformat
from course_lib.paths import REPOSITORY

from tests.notebooks.blanks import is_blank, is_folded


class Folded:
    """The folded cells and the blanks of a notebook, run with the course's versions chosen."""

    def __init__(self, notebook: str, **names: Any) -> None:
        exercises = SimpleNamespace(check=lambda *answer: None, choose=lambda number, yours, ours: ours)
        self.names: dict[str, Any] = {"exercises": exercises, **names}
        self.sources = list[str]()
        for cell in nbformat.read(REPOSITORY / "notebooks" / f"{notebook}.ipynb", as_version=4).cells:
            if cell.cell_type == "code" and (is_folded(cell) or is_blank(cell)):
                exec(cell.source.replace("as exercises", "as real"), self.names)
            if cell.cell_type == "code" and is_folded(cell):
                self.sources.append(cell.source)

    def changed(self, name: str, *edits: tuple[str, str]) -> Any:
        """Return a course's version with a mistake: its source with some text replaced."""
        source = next(text for text in self.sources if re.search(rf"^(def|class) {name}\b", text, re.M))
        for before, after in edits:
            assert before in source, (name, before)
            source = source.replace(before, after)
        names = dict(self.names)
        exec(source, names)
        return names[name]

"""What the learner of a notebook writes, a blank, and the course's version of it, which is folded below the blank."""

import ast
import re

import nbformat


def is_folded(cell: nbformat.NotebookNode) -> bool:
    """Whether JupyterLab, Colab and the site hide the code of a cell until the learner asks for it."""
    return "hide-input" in cell.metadata.get("tags", [])


def is_blank(cell: nbformat.NotebookNode) -> bool:
    """Whether the learner is to write a function or class of this cell: its body, or that of a method, is `...`."""
    if cell.cell_type != "code" or "exercises.check(" not in cell.source:
        return False
    tree = ast.parse(re.sub(r"^(\s*)%.*$", r"\1pass", cell.source, flags=re.M))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return any(ast.unparse(function.body[-1]) == "..." for function in functions)

"""Tables of what took too long to measure in a notebook: csv files beside the modules that they are about.

The scripts of tests/bench write them, and notebooks show them.
"""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from course_lib.files import atomic_write

LIBRARY = Path(__file__).parent.parent


def path(table: str) -> Path:
    """Return the path of a table: "pretrain/faults" stands for course_lib/pretrain/faults.csv."""
    return LIBRARY / f"{table}.csv"


def rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table by the names of its columns. Numbers are numbers, and empty cells empty strings."""
    with path(table).open(encoding="utf8", newline="") as file:
        return [{name: _value(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def write(table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table, whole. Its columns are those of the first row; a cell that another row lacks is empty."""
    text = StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with atomic_write(path(table)) as file:
        file.write(text.getvalue().encode())


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell

"""A process that makes one product, for the tests that kill it or race it: `python -m tests.one_product LOG GATE VERSION`.

Each build notes itself in LOG, writes half of its product, says so, and goes on when the file GATE appears.
"""

import sys
import time
from pathlib import Path
from typing import Any

from course_lib import files
from course_lib.workspace.products import Product

NAME = "part/thing"


def slow_product(log: Path, gate: Path, version: str) -> Product:
    """The product whose build waits for the gate; `version` is its only setting."""

    def build(folder: Path, _inputs: list[Path], _settings: Any) -> dict[str, Any]:
        with log.open("a") as file:
            file.write("built\n")
        if version == "nested":  # as the tokenizers do: their folder is the product's
            with files.atomic_folder(folder):
                print("half", flush=True)
                time.sleep(60)
        (folder / "half").write_text("half")
        print("half", flush=True)
        while not gate.exists():
            time.sleep(0.01)
        (folder / "whole").write_text("whole")
        return {"parts": 2}

    return Product(NAME, build, {"version": version})


def main(log: str, gate: str, version: str) -> None:
    """Asks for the product and says where it is."""
    print("asking", flush=True)
    print(slow_product(Path(log), Path(gate), version).path(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

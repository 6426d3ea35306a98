"""`python -m tests.rehearsal.build DIR`: small copies of the published models, and profiles that use them from DIR.

`COURSE_PROFILE=DIR/single-gpu-local.yaml` then runs the course without any server: bundled texts, models from DIR/hub.
"""

import shutil
import sys
from pathlib import Path

from course_lib.world.genres import write_documents

from tests.rehearsal import HERE, published

BASES = {"single-gpu": published.NEOX_SMALL, "xl": published.NEOX_LARGE}


def copy_settings(folder: Path) -> None:
    """Copy the small profiles and their runs to a folder, where profiles that extend them find them, and documents."""
    for path in HERE.glob("*.yaml"):
        shutil.copy(path, folder)
    # The documents of the profile laptop.
    write_documents(folder / "documents.jsonl", 1_000, seed=1)


def write_local(folder: Path) -> None:
    """Write a profile NAME-local.yaml for those with published models: bundled texts and the models in folder/hub."""
    for name, base in BASES.items():
        (folder / f"{name}-local.yaml").write_text(
            f"extends: {name}-small.yaml\n"
            "corpus:\n  sources: {wikipedia: bundled, webtext: bundled}\n"
            f"gptsan:\n  recipe: {{checkpoint: {folder.absolute() / 'hub' / published.GPTSAN}}}\n"
            f"prefix:\n  recipe: {{checkpoint: {folder.absolute() / 'hub' / base}}}\n",
            encoding="utf8",
        )


def main(folder: Path) -> None:
    """Build everything in a new folder."""
    folder.mkdir(parents=True)
    published.write_all(folder / "hub")
    copy_settings(folder)
    write_local(folder)
    print(f"COURSE_PROFILE={folder.absolute()}/single-gpu-local.yaml or xl-local.yaml")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Write the slides of all notebooks: `python -m course_slides [-o FOLDER]`."""

from pathlib import Path
from typing import Annotated

import typer
from course_lib import paths

from course_slides import build


def main(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="default: slides/ in the workspace")
    ] = None,
) -> None:
    """Write a deck of slides for each notebook, and an index; in ja/, those in Japanese. They need no network."""
    folder = output or paths.root().parent / "slides"
    # The Japanese ones last, because the first call replaces the whole folder.
    for language, subfolder in (("en", ""), ("ja", "ja")):
        notebooks = sorted((paths.NOTEBOOKS / subfolder).glob("*.ipynb"))
        written = build.write(notebooks, folder / subfolder, language) if notebooks else {}
        for name, (sections, slides) in written.items():
            print(f"{Path(subfolder) / name}: {sections} sections, {slides} slides")
    print(f"open {folder / 'index.html'} in a browser; S shows the speaker notes, ? lists the keys")


typer.run(main)

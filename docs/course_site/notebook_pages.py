"""Notebooks as pages: plots have a text for readers who do not see them, and the Colab badge loads nothing."""

from pathlib import Path
from typing import Any

import nbformat
import yaml
from course_lib.language.words import SOURCE
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
# notebook → id of a cell → what its plot shows
TEXTS = Path(__file__).parents[1] / "plots.yaml"
TRANSLATED = TEXTS.parent / "locale/{language}/plots.yaml"
BADGE = "colab-badge.svg"


class Plots(SphinxTransform):
    """Gives each plot in the outputs of a notebook its text from plots.yaml, and warns if there is none."""

    # After MyST-NB has made nodes from the outputs, before Sphinx collects the images.
    default_priority = 200

    def apply(self, **_: Any) -> None:
        """Set the texts of one page."""
        path = self.env.doc2path(self.env.docname)
        if not str(path).endswith(".ipynb"):
            return
        texts = self._texts(TEXTS, Path(path).stem)
        if self.config.language != SOURCE:
            english, file = texts, Path(str(TRANSLATED).format(language=self.config.language))
            texts = self._texts(file, Path(path).stem)
            if differ := sorted(set(english) ^ set(texts)):
                LOGGER.warning("%s: cells in one language only: %s", file, ", ".join(differ), location=self.env.docname)
        cells = nbformat.read(path, as_version=4).cells  # type: ignore[no-untyped-call]
        used = set()
        for cell in self.document.findall(nodes.container):
            if cell.get("nb_element") != "cell_code":
                continue
            identifier = cells[cell["cell_index"]].id
            for image in cell.findall(nodes.image):
                if identifier not in texts:
                    LOGGER.warning(
                        "the plot of cell %s has no text in docs/plots.yaml", identifier, location=self.env.docname
                    )
                image["alt"] = texts.get(identifier, "")
                used.add(identifier)
        # A translated notebook has no plots before its first execution.
        if used and (unused := set(texts) - used):
            LOGGER.warning("docs/plots.yaml: no plot in cells %s", ", ".join(sorted(unused)), location=self.env.docname)

    def _texts(self, path: Path, notebook: str) -> dict[str, str]:
        self.env.note_dependency(str(path))
        texts: dict[str, str] = yaml.safe_load(path.read_text(encoding="utf8")).get(notebook, {})
        return texts


class Badges(SphinxTransform):
    """Replaces Colab's badge, an image on Google's server, with its text as a link in the style of a button."""

    default_priority = 200

    def apply(self, **_: Any) -> None:
        """Replace the badges of one page."""
        for image in list(self.document.findall(nodes.image)):
            if str(image["uri"]).endswith(BADGE):
                image.parent["classes"].append("colab")
                image.replace_self(nodes.Text(image["alt"]))


def setup(app: Sphinx) -> None:
    """Register the transforms."""
    app.add_transform(Plots)
    app.add_transform(Badges)

"""The terms of docs/glossary.md in the index and in the search: in English, in Japanese and by their reading."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from course_site import page
from course_site.search import JAPANESE

GLOSSARY = "docs/glossary"


class Terms(SphinxTransform):
    """Lists each term, a heading of level 3, under its title and under the Japanese words of its first paragraph."""

    default_priority = 860

    def apply(self, **_: Any) -> None:
        """Add the entries, and remove the anchors for JupyterLab from the headings."""
        if self.env.docname != GLOSSARY:
            return
        for title in self.document.findall(nodes.title):
            for raw in list(title.findall(nodes.raw)):
                title.remove(raw)
            section = title.parent
            if isinstance(section.parent, nodes.section) and isinstance(section.parent.parent, nodes.section):
                first = next(section.findall(nodes.paragraph), nodes.paragraph())
                words = [title.astext(), *JAPANESE.findall(first.astext())]
                section.insert(1, page.index(words, section["ids"][0]))


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_transform(Terms)

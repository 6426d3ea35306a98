"""A list of contents that leaves out pages which do not exist, so that a part of docs/ can be built alone."""

from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree
from sphinx.util import docname_join
from sphinx.util.matching import patfilter


class PresentPages(TocTree):
    """A toctree whose entries may name no page."""

    content: StringList

    def parse_content(self, toctree: addnodes.toctree) -> None:
        """Keep the entries that name a page."""
        names = {entry: docname_join(self.env.docname, entry) for entry in self.content if entry}
        self.content = StringList([entry for entry, name in names.items() if patfilter(self.env.found_docs, name)])
        super().parse_content(toctree)


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("present-pages", PresentPages)

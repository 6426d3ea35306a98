"""The course at a glance on the home page, with a link on each notebook."""

import re
from html import escape

from course_lib.notebooks.drawing import overview
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

STOP = re.compile(r'<g id="(\w+)">\n(.*?)</g>', re.DOTALL)


class Overview(SphinxDirective):
    """The drawing as SVG inside the page, so that its boxes can be links."""

    def run(self) -> list[nodes.Node]:
        """Return the drawing."""
        drawing = overview()
        # As an image, the drawing would hide its links from screen readers.
        picture = drawing.svg.replace(' role="img"', f' role="group" aria-label="{escape(drawing.alt)}"', 1)
        picture = STOP.sub(self._link, picture)
        # After a search, Sphinx asks the parent of each hit for its position on the page, which these two do not have.
        picture = re.sub("<(title|desc)", r'<\1 class="nohighlight"', picture)
        frame = f'<div class="overview" role="region" aria-label="{escape(drawing.title)}" tabindex="0">{picture}</div>'
        return [nodes.raw("", frame, format="html", classes=["no-search"])]

    def _link(self, stop: re.Match[str]) -> str:
        page = relative_uri(f"{self.env.docname}.html", f"notebooks/{stop[1]}.html")
        label = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", stop[2]))
        return f'<a href="{page}" aria-label="{escape(label)}">{stop[0]}</a>'


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("overview", Overview)

"""The road of the course on the home page, with a link on each notebook."""

from html import escape

from course_lib.notebooks.road import HEIGHT, STOPS, WIDTH, road
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri


class Road(SphinxDirective):
    """The drawing as SVG inside the page, so that its boxes can be links."""

    def run(self) -> list[nodes.Node]:
        """Return the drawing."""
        drawing = road()
        links = "".join(self._link(name, corner, lines) for name, (corner, lines) in STOPS.items())
        # As an image, the drawing would hide its links from screen readers.
        picture = drawing.svg.replace(' role="img"', f' role="group" aria-label="{escape(drawing.alt)}"', 1)
        picture = picture.replace("</svg>", f"{links}</svg>")
        frame = f'<div class="road" role="region" aria-label="{escape(drawing.title)}" tabindex="0">{picture}</div>'
        return [nodes.raw("", frame, format="html", classes=["no-search"])]

    def _link(self, name: str, corner: tuple[int, int], lines: tuple[str, ...]) -> str:
        page = relative_uri(f"{self.env.docname}.html", f"notebooks/{name}.html")
        label = f"{lines[0]}: {' '.join(lines[1:])}"
        shape = f'<rect x="{corner[0]}" y="{corner[1]}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
        return f'<a href="{page}" aria-label="{escape(label)}">{shape}</a>'


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("road", Road)
